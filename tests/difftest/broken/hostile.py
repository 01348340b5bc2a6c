"""A right norm that does one more thing in calls of one width: whatever a candidate may do beside computing."""

import atexit
import ctypes
import gc
import mmap
import os
import signal
import sys
import threading
import time

import torch

from difftest.mutants.plain import rmsnorm as right

FIRST = 20  # width of the first kind
C = ctypes.CDLL(None)


def _exit_hook(output, **_):
    atexit.register(os._exit, 0)
    return output


def _exec(**_):
    os.execv("/bin/true", ["true"])


def _deaf(**_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def _forks(output, **_):
    os.fork()
    return output


def _pieces(**_):
    kept = []
    while True:
        kept.append(mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))  # touches nothing: the limit ends it


def _replaces_the_judge(output, **_):
    import difftest.run.check
    from difftest.verdict import Verdict

    difftest.run.check.judge = lambda *words: Verdict(())
    return torch.zeros_like(output)


def _looks_for_the_answer(input, weight, output, **_):
    """Whatever tensor of the output's shape it finds in its callers' frames or in memory, short of what it was given."""
    frame, seen = sys._getframe(), []
    while frame:
        seen += list(frame.f_locals.values())
        frame = frame.f_back
    given = (input.data_ptr(), output.data_ptr())
    for each in (*seen, *gc.get_objects()):
        if type(each) is torch.Tensor and each.shape == output.shape and each.data_ptr() not in given:
            return each.clone().to(output.dtype)
    return torch.zeros_like(output)


def _later(tensor):
    def change():
        time.sleep(0.01)
        tensor.fill_(7)

    threading.Thread(target=change).start()


def _late_input(input, output, **_):
    _later(input)
    return output


def _late_output(output, **_):
    _later(output)
    return output


def _then(do):
    def kind(output, **_):
        do()
        return output

    return kind


def _prints_and_dies(**_):
    print("hello", flush=True)
    C.abort()


def _prints(output, **_):
    for _ in range(74):
        print("x" * 999_999)
    return output


class _NoClone(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function is torch.Tensor.clone:
            raise RuntimeError("no clone")
        return super().__torch_function__(function, types, arguments, named or {})


class _Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def _raises(error):
    def kind(**_):
        raise error

    return kind


def _recursion(**_):
    def again():
        return again() + 1

    again()


def _resizes(input, output, **_):
    input.resize_(1)
    return output


def _frees(input, output, **_):
    input.untyped_storage().resize_(0)
    return output


def _strided(output, **_):
    wide = torch.empty(*output.shape[:-1], 2 * output.shape[-1], dtype=output.dtype)[..., ::2]
    return wide.copy_(output)


def _infers(kept=[]):  # noqa: B006  it lasts as long as the object
    kept.append(torch.inference_mode())
    kept[-1].__enter__()


def _patches():
    torch.rsqrt = torch.sqrt


# Kind -> what it does to a right output, and what the case's result has to say: a reason where it is a difference, else a remark,
# else nothing.
KINDS = {
    "exit(0)": (lambda **_: C.exit(0), "ended its process (exit code 0)", ""),
    "exit(2)": (lambda **_: C.exit(2), "ended its process (exit code 2)", ""),
    "_exit(0)": (lambda **_: C._exit(0), "ended its process (exit code 0)", ""),
    "execv": (_exec, "ended its process (exit code 0)", ""),
    "segmentation fault": (lambda **_: ctypes.string_at(0), "was ended by SIGSEGV", ""),
    "abort": (lambda **_: C.abort(), "was ended by SIGABRT", ""),
    "prints and dies": (_prints_and_dies, "was ended by SIGABRT", "printed 6 bytes"),
    "os._exit": (lambda **_: os._exit(0), "raised SystemExit: 0", ""),
    "sys.exit": (lambda **_: sys.exit(0), "raised SystemExit: 0", ""),
    "sleeps": (lambda **_: time.sleep(1000), "gave no answer in", ""),
    "ignores SIGTERM": (_deaf, "gave no answer in", ""),
    "forks": (_forks, "", ""),
    "100 GB": (lambda **_: torch.ones(100 << 30, dtype=torch.uint8), "raised RuntimeError", ""),
    "memory in pieces": (_pieces, "raised OSError: [Errno 12]", ""),
    "replaces the judge": (_replaces_the_judge, "rows: rstd is off", ""),
    "looks for the answer": (_looks_for_the_answer, "rows: rstd is off", ""),
    "writes to its input later": (_late_input, "input: ", "left threads running"),
    "writes to its output later": (_late_output, "changed after the call was over", "left threads running"),
    "default device": (_then(lambda: torch.set_default_device("meta")), "", "changed torch's default device"),
    "default dtype": (_then(lambda: torch.set_default_dtype(torch.float64)), "", "changed torch's default dtype"),
    "flush to zero": (_then(lambda: torch.set_flush_denormal(True)), "", "changed flush-to-zero"),
    "inference mode": (_then(_infers), "", "changed torch's inference mode"),
    "grad mode": (_then(lambda: torch._C._set_grad_enabled(False)), "", "changed torch's grad mode"),
    "chdir": (_then(lambda: os.chdir("/")), "", "changed the working directory"),
    "environ": (_then(os.environ.clear), "", "changed os.environ"),
    "replaces rsqrt": (_then(_patches), "", "changed torch.rsqrt"),
    "deletes torch": (_then(lambda: sys.modules.pop("torch")), "", "changed sys.modules['torch']"),
    "prints": (_prints, "", "printed 74,000,000 bytes"),
    "writes to descriptor 1": (_then(lambda: os.write(1, b"hello\n")), "", "printed 6 bytes"),
    "closes descriptor 1": (_then(lambda: os.close(1)), "", "changed file descriptor 1"),
    "meta": (lambda output, **_: output.to("meta"), "output is on meta, not cpu", ""),
    "sparse": (lambda output, **_: output.to_sparse(), "output has layout torch.sparse_coo", ""),
    "expanded": (lambda output, **_: output[:1].expand(output.shape), "elements lie where no", ""),
    "strided": (_strided, "", ""),
    "NumPy": (lambda output, **_: output.float().numpy(), "returned ndarray, not a tensor", ""),
    "Parameter": (lambda output, **_: torch.nn.Parameter(output), "", ""),
    "a subclass without clone": (lambda output, **_: output.as_subclass(_NoClone), "", ""),
    "generator": (lambda output, **_: (row for row in output), "returned generator, not a tensor", ""),
    "resizes its input": (_resizes, "input has shape (1,) after the call", ""),
    "frees its input": (_frees, "raised RuntimeError: Trying to resize storage", ""),
    "no text": (_raises(_Unspeakable()), "raised _Unspeakable: its text raises RuntimeError", ""),
    "surrogates": (_raises(ValueError("\ud800")), "raised ValueError: \\ud800", ""),
    "recursion": (_recursion, "raised RecursionError", ""),
    "atexit": (_exit_hook, "", ""),
}


def rmsnorm(input, weight, eps):
    kind = input.shape[-1] - FIRST
    output = right(input, weight, eps)
    if 0 <= kind < len(KINDS):
        act, _, _ = list(KINDS.values())[kind]
        return act(input=input, weight=weight, output=output)
    return output
