"""The block that says what an operator does with each kind of argument: every row is a call that is made, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from difftest.report.table import Table, markdown
from numba_kernels import operators

WIDTH = 8


def _array(*shape: int) -> np.ndarray:
    return np.ones(shape or (3, WIDTH), np.float32)


def _tensor() -> torch.Tensor:
    return torch.ones(3, WIDTH)


def _interleaved(touching: int) -> tuple[np.ndarray, np.ndarray]:
    """Two slices of one buffer, side by side in every row, or one element into each other."""
    buffer = _array(3, 2 * WIDTH)
    return buffer[:, :WIDTH], buffer[:, WIDTH - touching : 2 * WIDTH - touching]


def _frozen() -> np.ndarray:
    array = _array()
    array.flags.writeable = False
    return array


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return _tensor()


def _unaligned() -> np.ndarray:
    return np.zeros(12 * WIDTH + 1, np.uint8)[1:].view(np.float32).reshape(3, WIDTH)


def _norm(x: Any, weight: Any = None, **options: Any) -> None:
    ones = torch.ones(WIDTH) if isinstance(x, torch.Tensor) else _array(WIDTH)
    operators.rmsnorm(x, ones if weight is None else weight, **options)


def _norm_in_place() -> None:
    x = _array()
    _norm(x, out=x)


def _norm_onto_a_part() -> None:
    buffer = _array(4, WIDTH)
    _norm(buffer[:3], out=buffer[1:])


def _add(x: Any, residual: Any, weight: Any = None) -> None:
    ones = torch.ones(WIDTH) if isinstance(x, torch.Tensor) else _array(WIDTH)
    operators.fused_add_rmsnorm(x, residual, ones if weight is None else weight)


def _add_with_its_weight_between_the_rows() -> None:
    buffer = _array(3, 3 * WIDTH)
    _add(buffer[:, :WIDTH], buffer[:, WIDTH : 2 * WIDTH], buffer[0, 2 * WIDTH :])


CALLS: dict[str, Callable[[], None]] = {
    "rows any stride apart, from any element on": lambda: _norm(_array(3, 2 * WIDTH)[:, 1 : WIDTH + 1]),
    "one row for all (stride 0), read": lambda: _norm(np.broadcast_to(_array(WIDTH), (3, WIDTH))),
    "one row for all (stride 0), written": lambda: _add(torch.ones(WIDTH).expand(3, WIDTH), _tensor()),
    "every second element": lambda: _norm(_array(3, 2 * WIDTH)[:, ::2]),
    "Fortran order": lambda: _norm(np.asfortranarray(_array())),
    "rows in reverse": lambda: _norm(_array()[::-1]),
    "leading axes that do not flatten": lambda: _norm(_array(4, 3, WIDTH).transpose(1, 0, 2)),
    "memory off an element": lambda: _norm(_unaligned()),
    "no rows": lambda: _norm(_array(0, WIDTH)),
    "rows of no elements": lambda: _norm(_array(3, 0), _array(0)),
    "a scalar": lambda: _norm(np.array(1, np.float32)),
    "an odd row for gate and up": lambda: operators.silu_and_mul(_array(3, 7)),
    "fp64": lambda: _norm(np.ones((3, WIDTH))),
    "the other byte order": lambda: _norm(np.ones((3, WIDTH), ">f4")),
    "Python objects": lambda: _norm(np.ones((3, WIDTH), object)),
    "a masked array": lambda: _norm(np.ma.array(_array(), mask=False)),
    "a list": lambda: _norm(_array().tolist()),
    "fp16 rows, an fp32 weight": lambda: _norm(_array().astype(np.float16)),
    "fp32 rows, an fp16 weight": lambda: _norm(_array(), np.ones(WIDTH, np.float16)),
    "a weight of another width": lambda: _norm(_array(), _array(WIDTH + 1)),
    "a residual of another dtype": lambda: _add(_array(), _array().astype(np.float16)),
    "a residual of another shape": lambda: _add(_array(), _array(2, WIDTH)),
    "read-only memory, read": lambda: _norm(_frozen()),
    "read-only memory, written": lambda: _add(_array(), _frozen()),
    "`out` that is the input": _norm_in_place,
    "`out` that is a part of it": _norm_onto_a_part,
    "x and residual, slices of one buffer that do not touch": lambda: _add(*_interleaved(0)),
    "slices of one buffer, one element into each other": lambda: _add(*_interleaved(1)),
    "a weight between the rows": _add_with_its_weight_between_the_rows,
    "a tensor that requires grad, read": lambda: _norm(_tensor().requires_grad_()),
    "a tensor that requires grad, written": lambda: _add(_tensor().requires_grad_(), _tensor()),
    "an inference tensor outside inference mode, read": lambda: _norm(_inference()),
    "an inference tensor outside inference mode, written": lambda: _add(_tensor(), _inference()),
    "a meta tensor": lambda: _norm(_tensor().to("meta")),
    "a sparse tensor": lambda: _norm(_tensor().to_sparse()),
    "a lazily negated tensor": lambda: _norm(torch._neg_view(_tensor())),
    "eps -1": lambda: _norm(_array(), eps=-1.0),
    "eps 1e-46": lambda: _norm(_array(), eps=1e-46),
    "contract S0 for a norm": lambda: _norm(_array(), contract="S0"),
}
"""A kind of argument, as the page calls it, and a call with one."""


def arguments(page: Path) -> str:
    """Every kind of argument: taken, or the error."""
    rows = tuple((what, *_outcome(call)) for what, call in CALLS.items())
    return markdown(Table("", ("argument", "", "what it says"), rows, names=3))


def _outcome(call: Callable[[], None]) -> tuple[str, str]:
    try:
        call()
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error).replace("|", "\\|")
    return "taken", ""
