"""The generator of cases: a grid of widths and regimes, odd layouts, and random cases."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from difftest.cases import regimes
from difftest.cases.case import OUT_GIVEN, OUT_NONE, Case, row_buffers
from reference.contracts import Contract
from reference.operators import Operator, operator
from reference.operators.declaration import EPS


@dataclass(frozen=True, slots=True)
class Request:
    """What to generate. `contracts`: operator -> what it is held to, eps included; `rows` None lets the width decide."""

    contracts: Mapping[str, Contract]
    dtypes: Sequence[str]
    widths: Sequence[int]
    rows: Sequence[int] | None = None
    regimes: Sequence[str] | None = None  # None: all that apply
    extra: int = 0
    seed: int = 0
    device: str = "cpu"

    def template(self, op: str, dtype: str, width: int, regime: str, lead: tuple[int, ...], **layout: Any) -> Case:
        """A case of this request, with its contract's numbers but for those in `layout` and those that the regime has of its own.

        Its seed is a function of the base seed and of what the case is, not of its index.
        """
        key = f"{self.seed}/{op}/{dtype}/{width}/{regime}/{lead}/{sorted(layout.items())}"
        numbers = {name: layout.pop(name) for name in ("eps", *(p.name for p in operator(op).parameters)) if name in layout}
        contract = self.contracts[op].with_values(numbers | regimes.REGIMES[regime].numbers_of(operator(op)))
        return Case(op, dtype, lead, width, regime, zlib.crc32(key.encode()), contract, device=self.device, **layout)

    def regimes_of(self, op: str) -> list[str]:
        """The regimes to run for an operator, in their fixed order."""
        return [name for name in regimes.names(operator(op)) if self.regimes is None or name in self.regimes]


def default_rows(width: int, device: str) -> int:
    """Rows of a case when none are asked for.

    On the CPU about 16 000 elements, 4 to 8 rows: the emulator runs some thousands of rows of width 4096 a second, and
    the default run has 800 cases and a minute. On a GPU 64 rows, so that more than one block is resident.
    """
    if device.startswith("cuda"):
        return 64
    return max(4, min(8, 16384 // width))


def generate(request: Request) -> Iterator[Case]:
    """Every case of the request, group by group (operator, then dtype); the same request gives the same cases."""
    ops, dtypes = list(request.contracts), list(request.dtypes)
    groups = len(ops) * len(dtypes)
    for (i, op), (j, dtype) in itertools.product(enumerate(ops), enumerate(dtypes)):
        yield from grid(request, op, dtype)
        yield from layouts(request, op, dtype)
        if not request.regimes_of(op):
            continue
        turn = (j - i) % len(dtypes) * len(ops) + i  # the random cases go round the operators, each time in another dtype
        for number in range(len(range(turn, request.extra, groups))):
            yield random_case(request, op, dtype, number)


def grid(request: Request, op: str, dtype: str) -> Iterator[Case]:
    """Every width x number of rows x regime, contiguous and aligned."""
    for width in request.widths:
        for rows in request.rows or (default_rows(width, request.device),):
            for regime in request.regimes_of(op):
                yield request.template(op, dtype, width, regime, (rows,))


def layouts(request: Request, op: str, dtype: str) -> Iterator[Case]:
    """Shapes and memory layouts beside the plain one, at the widest width asked for up to 4096, unit normal.

    For each dtype: no rows; 1-D; 3-D; padded rows; `out` given; the other value of each parameter, in the regime `switches` where
    the formula changes its form at it. For each dtype of a single operator, and for one of each of several, in turn, since each
    makes the emulator compile another kernel: rows off their alignment, the weight off its alignment, an fp32 weight beside
    16-bit rows. None where the number of rows was asked for, or not the regime `normal`.
    """
    if request.rows is not None or "normal" not in request.regimes_of(op):
        return
    operation = operator(op)
    width = max((w for w in request.widths if w <= 4096), default=min(request.widths))

    def case(lead: tuple[int, ...], regime: str = "normal", **layout: Any) -> Case:
        return request.template(op, dtype, width, regime, lead, origin="layout", **layout)

    def chosen(turn: int, among: Sequence[str]) -> bool:
        if dtype not in among or len(request.contracts) == 1:
            return dtype in among
        return dtype == among[(list(request.contracts).index(op) + turn) % len(among)]

    yield case((0,))
    yield case(())
    yield case((2, 3))
    yield case((3,), padding=_every(operation, OUT_NONE, 8))
    if not operation.mutated:
        yield case((3,), out=OUT_GIVEN)
    for parameter in operation.parameters:
        reaching = operation.switched_by(parameter) and "switches" in request.regimes_of(op)
        yield case((3,), "switches" if reaching else "normal", **{parameter.name: parameter.other})

    if chosen(0, request.dtypes):
        yield case((3,), padding=_every(operation, OUT_NONE, 3))
        for name in row_buffers(operation, OUT_NONE if operation.mutated else OUT_GIVEN):
            yield case((3,), misaligned=(name,), out=OUT_GIVEN if name == "output" else OUT_NONE)
    for vector in operation.vectors:
        if chosen(1, request.dtypes):
            yield case((3,), misaligned=(vector,))
        if chosen(0, [d for d in request.dtypes if d != "fp32"]):
            yield case((3,), weight_dtype="fp32")


def _every(op: Operator, out: str, elements: int) -> tuple[tuple[str, int], ...]:
    """As many elements between the rows of every buffer."""
    return tuple((name, elements) for name in row_buffers(op, out) if elements)


def random_case(request: Request, op: str, dtype: str, number: int) -> Case:
    """The `number`-th random case of a group: a width, a shape, a layout, a regime and numbers, each drawn apart."""
    draw = random.Random(f"{request.seed}/{op}/{dtype}/{number}")
    operation = operator(op)
    width = draw.choice((draw.randint(1, 300), round(2 ** draw.uniform(0, 13)), 8 * draw.randint(1, 512)))
    most = max(1, min(16, 32768 // width))
    lead = draw.choice(((), (draw.randint(1, most),), (draw.randint(1, 4), draw.randint(1, max(1, most // 4)))))
    if request.rows is not None:
        lead = (draw.choice(list(request.rows)),)
    contract = request.contracts[op]
    regime = draw.choice(request.regimes_of(op))
    out = OUT_GIVEN if not operation.mutated and draw.random() < 0.5 else OUT_NONE
    rows = row_buffers(operation, out)
    return request.template(
        op,
        dtype,
        width,
        regime,
        lead,
        padding=_every(operation, out, draw.choice((0, 0, 1, 8, 24))),
        misaligned=tuple(name for name in (*rows, *operation.vectors) if draw.random() < 0.2),
        out=out,
        weight_dtype="fp32" if operation.vectors and dtype != "fp32" and draw.random() < 0.25 else None,
        eps=draw.choice((contract.eps, contract.eps, EPS.other, 1e-8)) if EPS in operation.parameters else contract.eps,
        **{p.name: draw.choice((contract.value(p.name), p.other)) for p in operation.parameters if p != EPS},
        origin=f"random:{number}",
    )
