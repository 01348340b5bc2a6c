"""Compiling ahead of the first call: which kernels a server's calls take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING

from ..declarations import OPERATORS, Checked, Flag, Number, Operator, Role
from ..formats import FORMATS
from . import arguments as check
from .arrays import Array, Rows

if TYPE_CHECKING:
    from ..kernels.config import Kernel
    from ..tuning import Target


def warm_up(
    ops: Iterable[str],
    dtypes: Iterable[str],
    widths: Iterable[int],
    rows: Iterable[int],
    *,
    contract: str | None = None,
    device: int = 0,
    processes: int | None = None,
) -> int:
    """Compile and load what calls of these operators need on a GPU, so that no first call waits for it. Returns how many kernels.

    ``dtypes``: of "fp32", "fp16", "bf16", weights alike. ``widths``: of the output. ``rows``: numbers of rows to be met; few
    kernels serve all of them. Tensors are taken for contiguous and aligned. ``contract``: None is each operator's default.
    ``processes``: None is one a core. Machine code that the package brings is loaded as it is; what is compiled goes to the disk
    cache, so the next process compiles nothing.

    Raises ValueError, naming the argument, for what is not supported; RuntimeError without a GPU, or where a compilation fails.
    """
    from . import launch
    from .compiling import compile_all

    ops, dtypes, widths, rows = list(ops), list(dtypes), list(widths), list(rows)
    _check(ops, dtypes, widths, rows)
    if launch.device_count() == 0:
        raise RuntimeError("warm_up: there is no CUDA device to compile for")
    kernels = kernels_of(ops, dtypes, widths, rows, launch.target(device), contract=contract)
    compile_all(kernels, launch.capability(device), processes or os.cpu_count() or 1)
    for kernel in kernels:
        launch.load(device, kernel)
    return len(kernels)


def kernels_of(
    ops: Sequence[str],
    dtypes: Sequence[str],
    widths: Sequence[int],
    rows: Sequence[int],
    target: Target,
    *,
    contract: str | None = None,
) -> list[Kernel]:
    """What tuning chooses on ``target`` for each combination, each kernel once."""
    found: dict[Kernel, None] = {}
    for op, dtype, width, count in product(ops, dtypes, widths, rows):
        operator = OPERATORS[op]
        plan = operator.launch.plan(_call(operator, dtype, width, count, contract))
        found[plan.kernel(target, (0,) * len(operator.buffer_arguments()), target.pdl)] = None
    return list(found)


def _check(ops: Sequence[str], dtypes: Sequence[str], widths: Sequence[int], rows: Sequence[int]) -> None:
    for name, given, known in (("ops", ops, list(OPERATORS)), ("dtypes", dtypes, list(FORMATS))):
        for each in given:
            if each not in known:
                raise ValueError(f"{name}: {each!r}; {', '.join(known)} are supported")
    for name, numbers in (("widths", widths), ("rows", rows)):
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{name}: {number!r}; whole numbers from 1 on are supported")


def _call(operator: Operator, dtype: str, width: int, count: int, contract: str | None) -> Checked:
    """A call of contiguous tensors, as it is after its checks."""

    def placed(name: str, rows: int, length: int) -> Rows:
        array = Array(name, 0, (rows, length), (length, 1), dtype, 0, 0, False, None)
        return Rows(array, rows, length, length)

    rows = {
        tensor.name: placed(
            tensor.name, *((1, width) if tensor.role is Role.VECTOR else (count, width * (1 + tensor.role.double)))
        )
        for tensor in operator.tensors
    }
    if operator.returns_out:
        rows["out"] = placed("out", count, width)
    choices = check.check_contract(operator, operator.default("contract") if contract is None else contract)
    numbers = {p.name: check.check_number(p, operator.default(p.name)) for p in operator.parameters if isinstance(p, Number)}
    flags = {p.name: bool(operator.default(p.name)) for p in operator.parameters if isinstance(p, Flag)}
    return Checked(rows, choices, numbers, flags)
