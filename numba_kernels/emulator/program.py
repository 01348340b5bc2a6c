"""An unmodified numba.cuda program on the emulator: launches, copies, streams and events, with no GPU and no driver.

What stands for device memory are the arrays of numba-cuda's own simulator; the kernels run on the emulator.
"""

from __future__ import annotations

import builtins
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
from numba import cuda

from .errors import EmulatorError, KernelException, OutOfBounds
from .executed import exec_that_keeps
from .host import Context, Event, Stream
from .launch import EmulatedKernel
from .signatures import signatures_of

OF_CODE = ("link", "launch_bounds", "lto", "lineinfo", "cache")  # options that say how, not what
ARRAYS = (
    "to_device", "device_array", "device_array_like", "pinned_array", "pinned_array_like", "mapped_array", "managed_array",
    "pinned",
)  # fmt: skip
THREADS_OF_FORALL = 128  # a block, where numba-cuda would ask the driver


class Configured:
    """A kernel with its launch configuration."""

    def __init__(
        self, emulation: Emulation, dispatcher: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0
    ) -> None:
        self.emulation, self.dispatcher = emulation, dispatcher
        self.griddim, self.blockdim, self.sharedmem = griddim, blockdim, int(sharedmem)

    def __call__(self, *args: Any) -> None:
        self.emulation.call(self.dispatcher, args, self)


class Form:
    """A kernel's form for argument types, as far as programs ask."""

    def __init__(self, kernel: EmulatedKernel) -> None:
        self.kernel = kernel

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        return self.kernel.most_together(blockdim, dynsmemsize)


class Forms(OrderedDict[Any, Any]):
    """A dispatcher's forms by argument types: what numba-cuda compiled, to be shown, and of its signatures what runs here."""

    def __init__(self, kinds: set[Any], kernel: Callable[[], EmulatedKernel]) -> None:
        super().__init__()
        self.kinds, self.kernel = kinds, kernel

    def __missing__(self, kinds: Any) -> Form:
        if kinds not in self.kinds:
            raise KeyError(kinds)
        return Form(self.kernel())


class Emulation:
    """How the program's kernels run, and what came of it: ``notes``, of all launches; ``launches``, how many there were."""

    def __init__(self, check: str, schedule_seed: int | None, same_value: str) -> None:
        self.check, self.schedule_seed, self.same_value = check, schedule_seed, same_value
        self.notes: list[str] = []
        self.launches = 0
        self._kernels: dict[Any, EmulatedKernel] = {}
        self._jit = cuda.jit

    def jit(self, func_or_sig: Any = None, **options: Any) -> Any:
        """``cuda.jit``, which compiles nothing yet."""
        signature, function = (None, func_or_sig) if callable(func_or_sig) and not _is_type(func_or_sig) else (func_or_sig, None)
        if function is None:
            return lambda f: self._made(f, signature, options)
        return self._made(function, None, options)

    def _made(self, function: Any, signature: Any, options: dict[str, Any]) -> Any:
        options = {k: v for k, v in options.items() if k not in OF_CODE}
        dispatcher = self._jit(function, **options)
        dispatcher.emulated_signature = None if options.get("device") else signature
        dispatcher.emulated_kinds = set(signatures_of(function, dispatcher.emulated_signature))
        dispatcher.overloads = Forms(dispatcher.emulated_kinds, lambda: self.kernel_of(dispatcher))
        return dispatcher

    def kernel_of(self, dispatcher: Any) -> EmulatedKernel:
        """What runs in a dispatcher's place."""
        if dispatcher not in self._kernels:
            signature = getattr(dispatcher, "emulated_signature", None)
            self._kernels[dispatcher] = EmulatedKernel(dispatcher, self.check, signature=signature)
        return self._kernels[dispatcher]

    def call(self, dispatcher: Any, args: tuple[Any, ...], configuration: Configured) -> None:
        """Launch a kernel, to its end."""
        kernel = self.kernel_of(dispatcher)
        self.launches += 1
        try:
            given = tuple(_host(_extended(dispatcher, a)) for a in args)
            self.notes += kernel.launch(
                configuration.griddim,
                configuration.blockdim,
                given,
                dynamic_shared_bytes=configuration.sharedmem,
                schedule_seed=self.schedule_seed,
                same_value=self.same_value,
            )
            self.notes += [remark for remark in kernel.remarks(given) if remark not in self.notes]
        except (KernelException, OutOfBounds) as error:
            if not dispatcher.targetoptions.get("debug") or error.__cause__ is None:
                raise
            raise _as_in_debug_mode(error, configuration.blockdim) from error


def _as_in_debug_mode(error: EmulatorError, block: Any) -> Exception:
    """What numba-cuda raises for a kernel's exception in debug mode: its own class, with the thread's and the block's indices."""
    cause: Any = error.__cause__
    width, height, _ = (*(int(n) for n in (block if isinstance(block, tuple | list) else (block,))), 1, 1)[:3]
    thread = error.thread or 0
    tid = [thread % width, thread // width % height, thread // width // height]
    said = f"{error.reason.partition(': ')[2] or cause}"
    where = f"In function {error.kernel!r}, file {error.file}, line {error.line}, tid={tid} ctaid={list(error.block or ())}"
    return type(cause)(f"{where}: {said}" if said else where)


def _compiled_first(inspect: Any) -> Any:
    """A dispatcher's method that shows its code, after what was launched is compiled, which needs NVVM and no GPU."""

    def inspected(dispatcher: Any, *args: Any, **options: Any) -> Any:
        for kinds in getattr(dispatcher, "emulated_kinds", ()):
            dispatcher.compile(kinds)
        return inspect(dispatcher, *args, **options)

    return inspected


def _interface(array: Any) -> dict[str, Any]:
    """``__cuda_array_interface__`` of an array that stands for one on the device."""
    found = array._ary.__array_interface__
    return {name: found[name] for name in ("shape", "typestr", "data", "strides", "version")}


def _is_type(value: Any) -> bool:
    from numba.core import types

    return isinstance(value, types.Type)


def _extended(dispatcher: Any, value: Any) -> Any:
    """An argument as the dispatcher's extensions make it, the last one first."""
    kind = None
    for extension in reversed(dispatcher.extensions):
        kind, value = extension.prepare_args(kind, value, stream=0, retr=[])
    return value


def _host(value: Any) -> Any:
    """An argument as the emulator takes it, in the memory of its owner."""
    from numba.cuda.args import ArgHint, In
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    if isinstance(value, In):
        value = value.value.copy()
    elif isinstance(value, ArgHint):
        value = value.value
    if isinstance(value, FakeCUDAArray):
        return value._ary
    if isinstance(value, tuple):
        parts = [_host(v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


@contextlib.contextmanager
def emulating(*, check: str = "full", schedule_seed: int | None = None, same_value: str = "note") -> Iterator[Emulation]:
    """Within it, ``numba.cuda`` needs no GPU: kernels made by ``cuda.jit``, before or here, run on the emulator when they are
    launched; ``cuda.to_device``, ``device_array`` and the like, streams and events work on host memory.

    ``check``, ``schedule_seed``, ``same_value``: as in :meth:`EmulatedKernel.launch`, whose errors a launch raises. For one
    thread of the host at a time: the names of the module ``numba.cuda`` are other ones for as long.
    """
    from numba.cuda import api, dispatcher
    from numba.cuda.cudadrv import devices
    from numba.cuda.dispatcher import CUDADispatcher
    from numba.cuda.simulator.cudadrv import devicearray

    emulation = Emulation(check, schedule_seed, same_value)
    stream = Stream()

    def forall(dispatcher: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Any:
        if ntasks < 0:
            raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
        threads = tpb or THREADS_OF_FORALL
        return dispatcher.configure(-(-ntasks // threads), threads, stream, sharedmem) if ntasks else lambda *args: None

    def as_device_array(obj: Any, sync: bool = True) -> Any:
        return obj if devicearray.is_cuda_ndarray(obj) else devicearray.FakeCUDAArray(np.asarray(obj))

    names: dict[str, Any] = {name: getattr(devicearray, name) for name in ARRAYS}
    names.update(
        jit=emulation.jit,
        stream=lambda: stream,
        default_stream=lambda: stream,
        legacy_default_stream=lambda: stream,
        per_thread_default_stream=lambda: stream,
        event=Event,
        synchronize=lambda: None,
        is_available=lambda: True,
        is_cuda_array=devicearray.is_cuda_ndarray,
        current_context=lambda *_: Context,
        get_current_device=lambda: Context.device,
        select_device=lambda *_: Context.device,
        close=lambda: None,
        detect=lambda: True,
        gpus=[Context.device],
        as_cuda_array=lambda obj, sync=True: (
            obj if devicearray.is_cuda_ndarray(obj) else devicearray.FakeCUDAArray(np.asarray(obj))
        ),
    )
    with contextlib.ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(mock.patch.object(cuda, name, value, create=True))
        for module, name in ((devices, "get_context"), (api, "current_context"), (dispatcher, "get_context")):
            stack.enter_context(mock.patch.object(module, name, return_value=Context))
        stack.enter_context(
            mock.patch.object(devicearray.FakeCUDAArray, "__cuda_array_interface__", property(_interface), create=True)
        )
        for name in ("inspect_asm", "inspect_llvm", "inspect_lto_ptx"):
            shown = _compiled_first(getattr(CUDADispatcher, name))
            stack.enter_context(mock.patch.object(CUDADispatcher, name, shown))
        stack.enter_context(mock.patch.object(dispatcher._Kernel, "bind"))
        stack.enter_context(mock.patch.object(builtins, "exec", exec_that_keeps))
        stack.enter_context(mock.patch.object(CUDADispatcher, "configure", lambda *given: Configured(emulation, *given)))
        stack.enter_context(mock.patch.object(CUDADispatcher, "forall", forall))
        yield emulation


def emulate(
    kernel: Any,
    grid: Any,
    block: Any,
    args: Any = (),
    *,
    check: str = "full",
    schedules: int = 1,
    seed: int = 0,
    dynamic_shared_bytes: int = 0,
    same_value: str = "note",
) -> list[str]:
    """Launch a kernel on the emulator: once in order, then in ``schedules - 1`` drawn schedules (seeds from ``seed`` on), each
    from the same memory; the arrays among ``args`` are left as the first one made them.

    Returns notes: writes of the same value, and lines whose last bit a GPU may have otherwise. Raises an :class:`EmulatorError`,
    whose ``schedule_seed`` repeats it.
    """
    from .races import arrays_in

    made = EmulatedKernel(kernel, check)
    arrays = [a for a in arrays_in(args) if a.flags.writeable]
    before = [a.copy() for a in arrays] if schedules > 1 else []
    options = {"dynamic_shared_bytes": dynamic_shared_bytes, "same_value": same_value}
    notes = made.launch(grid, block, args, **options)  # type: ignore[arg-type]
    first = [a.copy() for a in arrays] if schedules > 1 else []
    for k in range(schedules - 1):
        for array, old in zip(arrays, before, strict=True):
            array[...] = old
        notes += [n for n in made.launch(grid, block, args, schedule_seed=seed + k, **options) if n not in notes]  # type: ignore[arg-type]
    for array, found in zip(arrays, first, strict=False):
        array[...] = found
    return notes + made.remarks(args)
