"""A call of an operator, all from its declaration: what is known of an earlier one like it, or else every check, then the launch.

A call is like an earlier one if it has the same kinds of torch CUDA tensors and options, whose checks passed then. What its key
does not hold (addresses, so alignment and overlap; the current stream and device) is looked at again each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ..declarations import Checked, Flag, Launch, Number, Operator, Role, Rounding, declare
from . import arguments as check
from . import dispatch
from .arrays import CPU, Array, Rows, as_rows, describe
from .source import make_function, parameter_list

KNOWN_LIMIT = 8192  # kinds of calls kept for an operator, about a kilobyte each: serving code meets every batch size


def operator(
    *,
    tensors: Mapping[str, Role],
    roundings: tuple[Rounding, ...],
    launch: Launch,
    parameters: tuple[Number | Flag, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: declares an operator and gives the function its body. Of the function, signature and docstring are read."""

    def give_body(function: Callable[..., Any]) -> Callable[..., Any]:
        public = make_call(declare(function, tensors, parameters, roundings, launch))
        for attribute in ("__doc__", "__module__", "__qualname__", "__annotations__"):
            setattr(public, attribute, getattr(function, attribute))
        return public

    return give_body


def make_call(operator: Operator, *, direct: bool = False) -> Callable[..., Any]:
    """The function that runs ``operator``. ``direct``: PyTorch's dispatcher has seen the call; all goes by position."""
    known: dict[Hashable, tuple[Any, ...]] = {}
    name = f"{operator.name}_kernel" if direct else operator.name
    return make_function(
        name,
        call_source(operator, name, direct=direct),
        recall=known.get,
        run_checked=partial(run_checked, operator, known, direct),
        dispatch=dispatch,
    )


def call_source(operator: Operator, name: str, *, direct: bool) -> list[str]:
    """The lines of a call: a remembered one is written out for its arguments, as a loop over them would take twice as long."""
    arrays = [t.name for t in operator.tensors] + ["given"] * operator.returns_out
    written = ["given"] if operator.returns_out else operator.written
    names, (x, *_) = ", ".join(operator.arguments), arrays
    lines = [f"def {name}({parameter_list(operator.signature, positional=direct)}):"]
    if not direct:
        lines += [
            "    if dispatch.under_dynamo():",
            f"        return dispatch.TRACED[{operator.name!r}]({_passed(operator)})",
        ]
    new_shape = "(*shape[:-1], shape[-1] // 2)" if operator.halves_input else "shape"
    lines += [
        "    given = out" if operator.returns_out else "",
        "    try:",
        f"        shape = {x}.shape",
        *(
            [
                f"        if out is None and {x}.get_device() >= 0:",
                f"            given = {x}.new_empty({new_shape})",
            ]
            if operator.returns_out
            else []
        ),
        f"        key = ({', '.join(_key(operator, arrays))})",
        "        known = recall(key)",
        "    except (AttributeError, TypeError, IndexError, RuntimeError):  # not torch tensors, or not strided ones",
        f"        key = known = None{'; given = out' if operator.returns_out else ''}",
        f"    if known is not None and not ({' or '.join(_may_be_refused(a) for a in written)}):",
        f"        prepared, current_stream, modes, tell_written, device, {', '.join(f'{a}_bytes' for a in arrays)} = known",
        f"        {', '.join(f'{a}_at' for a in arrays)} = {', '.join(f'{a}.data_ptr()' for a in arrays)}",
        *(f"        apart = {'apart and ' * (k > 0)}({test})" for k, test in enumerate(_apart(operator, arrays))),
        f"        if apart and {' and '.join(f'{a}_at' for a in arrays)}{'' if direct else ' and not modes()'}:",
        f"            prepared.launch({_buffers(operator)}, {_alignment(operator, arrays)}, current_stream(device))",
        *(
            ["            if out is not None:", "                tell_written((out,))", "            return given"]
            if operator.returns_out
            else [f"            tell_written(({', '.join(written)},))", "            return None"]
        ),
        f"    return run_checked(key, {'given' if operator.returns_out else None}, ({names}))",
    ]
    return [line for line in lines if line]


def _may_be_refused(a: str) -> str:
    """A test of what is written and not in the key: whether autograd, or inference mode, may have to do with it."""
    return f"{a}.requires_grad or ({a}.is_inference() and dispatch.is_closed({a}))"


def _passed(operator: Operator) -> str:
    """The arguments of a call of the public signature, passed on."""
    parameters = operator.signature.parameters.values()
    return ", ".join(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)


def _key(operator: Operator, arrays: list[str]) -> list[str]:
    """What tells one kind of call from another. The input's shape is at hand."""
    seen = [f"{a}.__class__" for a in arrays]
    for a in arrays:
        seen += ["shape" if a == arrays[0] else f"{a}.shape", f"{a}.stride()", f"{a}.dtype", f"{a}.get_device()", f"{a}.is_neg()"]
    tensors = {t.name for t in operator.tensors}
    return seen + [a for a in operator.arguments if a not in tensors and a != "out"]


def _apart(operator: Operator, arrays: list[str]) -> list[str]:
    """Tests of what runs on from each argument's first address: nothing that is written is in another's, as check_apart says."""
    written = {"given"} if operator.returns_out else set(operator.written)
    tests = []
    for a, b in combinations(arrays, 2):
        if a in written or b in written:
            same = f" or ({a}_at == {b}_at and {a}_bytes == {b}_bytes)"
            may_be_same = (a, b) == ("input", "given") and not operator.halves_input
            tests.append(f"{a}_at + {a}_bytes <= {b}_at or {b}_at + {b}_bytes <= {a}_at{same if may_be_same else ''}")
    return tests


def _buffers(operator: Operator) -> str:
    arguments = ("given" if a == "out" else a for a in operator.buffer_arguments())
    return f"({', '.join(f'{a}_at' for a in arguments)})"


def _alignment(operator: Operator, arrays: list[str]) -> str:
    """A key of the addresses' places within 16 bytes: of all rows together, then of each vector."""
    vectors = [t.name for t in operator.tensors if t.role is Role.VECTOR]
    rows = " | ".join(f"{a}_at" for a in arrays if a not in vectors)
    return f"({rows}) & 15" + "".join(f" | ({a}_at & 15) << {4 * k}" for k, a in enumerate(vectors, 1))


def run_checked(operator: Operator, known: dict, direct: bool, key: Hashable, given: Any, values: tuple[Any, ...]) -> Any:
    """Check a call, run it, and remember it under ``key`` (None: it can't be). ``given`` is ``out`` or a new tensor for it."""
    named = dict(zip(operator.arguments, values, strict=True))
    if not direct and dispatch.wants(values):
        return dispatch.TRACED[operator.name](**named)
    choices = check.check_contract(operator, named["contract"])
    numbers = {p.name: check.check_number(p, named[p.name]) for p in operator.parameters if isinstance(p, Number)}
    flags = {p.name: check.check_flag(p, named[p.name]) for p in operator.parameters if isinstance(p, Flag)}
    enable_pdl = check.check_pdl(named["enable_pdl"])
    arrays = {t.name: describe(t.name, named[t.name]) for t in operator.tensors}
    x = arrays["input"]
    check.check_tensors(operator, arrays)
    shape = check.output_shape(operator, x)
    rows = {t.name: (check.writable_rows if t.written else as_rows)(arrays[t.name]) for t in operator.tensors}
    if operator.returns_out:
        given, rows["out"] = _output(given, x, shape)
    check.check_apart(operator, rows)
    if rows["input"].count == 0:
        return given
    check.check_row_width(x)
    call = Checked(rows, choices, numbers, flags)
    _launch(operator, call, enable_pdl, known, key)
    dispatch.tell_written(tuple(named[name] for name in operator.written))
    return given


def _output(out: Any, like: Array, shape: tuple[int, ...]) -> tuple[Any, Rows]:
    """The caller's ``out``, checked, or a new array of the kind of ``like``; and its rows."""
    if out is None:
        out = _new(like, shape)
    array = describe("out", out)
    check.check_device({"input": like, "out": array})
    check.check_same(array, like, shape)
    return out, check.writable_rows(array)


def _new(like: Array, shape: tuple[int, ...]) -> Any:
    """An uninitialised array of ``shape`` in the library of ``like``'s owner."""
    owner = like.owner
    if isinstance(owner, np.ndarray):
        return np.empty(shape, owner.dtype)
    if hasattr(owner, "new_empty"):  # torch
        return owner.new_empty(shape)
    library = type(owner).__module__.split(".")[0]
    if library == "cupy":
        import cupy

        return cupy.empty(shape, owner.dtype)
    raise TypeError(f"out: pass an array for the result; {type(owner).__module__}.{type(owner).__name__} can't be allocated here")


def _launch(operator: Operator, call: Checked, enable_pdl: bool | None, known: dict, key: Hashable) -> None:
    """Run a checked call, and remember it under ``key`` where the tensors are torch's, on a GPU."""
    plan = operator.launch.plan(call)
    arguments = operator.buffer_arguments()
    buffers = tuple(call.rows[name] for name in arguments)
    device = buffers[0].array.device
    if device == CPU:
        from . import host

        if host.emulates():
            host.emulate(plan, buffers)
        else:
            host.stage(plan, buffers, tuple(name in operator.written for name in arguments), enable_pdl)
        return
    from .launch import Prepared, alignment_of

    prepared = Prepared(plan, device, enable_pdl)
    addresses = tuple(b.array.address for b in buffers)
    prepared.launch(addresses, alignment_of(addresses), buffers[0].array.stream)
    if key is not None:
        from torch._C import _cuda_getCurrentRawStream as current_stream
        from torch.autograd.graph import increment_version as tell_written

        # A fresh one: this one's variants are keyed by every address, a remembered call's by the fewest.
        fresh = Prepared(plan, device, enable_pdl)
        sizes = [r.extent * r.array.itemsize for r in call.rows.values()]
        remember(known, key, (fresh, current_stream, dispatch.modes(), tell_written, device, *sizes))


def remember(known: dict, key: Hashable, what: tuple[Any, ...]) -> None:
    """Keep what a call like this one needs; the oldest is given up where there are too many."""
    if len(known) >= KNOWN_LIMIT:
        known.pop(next(iter(known)), None)
    known[key] = what
