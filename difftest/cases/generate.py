"""The generator of cases: a grid of widths and regimes, a covering array of everything else, and random cases."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from typing import Any

from difftest.cases import regimes
from difftest.cases.array import Coverage, cover
from difftest.cases.case import OUT_GIVEN, OUT_NONE, Case, row_buffers
from difftest.cases.dimensions import ASKED, OTHER_EPS, dimensions
from difftest.cases.request import Request
from difftest.cases.weights import names as weights_of
from difftest.cases.widths import members, nearest_shared
from reference.formats import FORMATS
from reference.operators import operator
from reference.operators.declaration import EPS

FAR = 2**31  # elements between two rows: the second begins beyond a signed number of 32 bits, the third beyond an unsigned one
FAR_APART = "far"  # the origin of such a case
FAR_ROWS, FAR_WIDTH = (3, 33), 1024  # how many rows of such a case, and the widest
LIGHT = 2**15  # elements: of the widths that stand for a class, those that keep a case below it


def default_rows(width: int, device: str) -> int:
    """Rows of a case of the grid when none are asked for.

    On the CPU about 16 000 elements, 4 to 8 rows: the emulator runs some thousands of rows of width 4096 a second, and
    the default run has 5 000 cases and a minute. On a GPU 64 rows, so that more than one block is resident.
    """
    if device.startswith("cuda"):
        return 64
    return max(4, min(8, 16384 // width))


def generate(request: Request) -> Iterator[Case]:
    """Every case of the request, group by group (operator, then dtype); the same request gives the same cases."""
    ops, dtypes = list(request.contracts), list(request.dtypes)
    groups = len(ops) * len(dtypes)
    for (i, op), (j, dtype) in itertools.product(enumerate(ops), enumerate(dtypes)):
        if not request.regimes_of(op):
            continue
        edges = list(grid(request, op, dtype))
        yield from edges
        yield from array(request, op, dtype, edges)
        yield from rows_far_apart(request, op, dtype)
        turn = (j - i) % len(dtypes) * len(ops) + i  # the random cases go round the operators, each time in another dtype
        for number in range(len(range(turn, request.extra, groups))):
            yield random_case(request, op, dtype, number)


def grid(request: Request, op: str, dtype: str) -> Iterator[Case]:
    """Every width x number of rows x regime, contiguous and aligned."""
    for width in request.widths:
        for rows in request.rows or (None,):
            for regime in request.regimes_of(op):
                yield _of_grid(request, op, dtype, width, rows, regimes.REGIMES[regime])


def _of_grid(request: Request, op: str, dtype: str, width: int, rows: int | None, regime: regimes.Regime) -> Case:
    """A case of the grid; `rows` None lets the width and the regime decide."""
    wide = width >= 1024 and dtype != "fp32"  # narrower rows say little of their rstd, fp32 ones much
    if rows is None:
        rows = max(default_rows(width, request.device), regime.rows if wide else 0)
    format_of_vectors = {"weight_dtype": regime.weight_dtype} if regime.weight_dtype not in (None, dtype) else {}
    return request.template(op, dtype, width, regime.name, (rows,), **(format_of_vectors if operator(op).vectors else {}))


def array(request: Request, op: str, dtype: str, beside: list[Case]) -> Iterator[Case]:
    """Cases that, with those `beside`, cover every combination of `request.strength` values of the dimensions."""
    if not request.strength:
        return
    coverage = Coverage(dimensions(request, op, dtype), request.strength)

    def realise(values: dict[str, Any], number: int) -> Case:
        return realised(request, op, dtype, values, number)

    yield from cover(coverage, f"{request.seed}/{op}/{dtype}", beside, realise)


def rows_far_apart(request: Request, op: str, dtype: str) -> Iterator[Case]:
    """One case whose row buffers hold rows `FAR` elements apart, each with a stride of its own: a position in 32 bits shows.

    Where memory takes room only where it is touched and addresses are not counted, and of rows and widths asked for that are few.
    """
    least, most = FAR_ROWS
    rows = [n for n in (request.rows or (least,)) if least <= n <= most]
    widths = [width for width in request.widths if width <= FAR_WIDTH]
    if not (request.strength and rows and widths and request.device == "cpu" and _addresses_are_free()):
        return
    out = OUT_GIVEN if OUT_GIVEN in request.outs(op) else OUT_NONE
    padding = tuple((name, FAR + 8 * k) for k, name in enumerate(row_buffers(operator(op), out)))
    yield request.template(
        op, dtype, max(widths), request.regimes_of(op)[0], (min(rows),), padding=padding, out=out, origin=FAR_APART
    )


def _addresses_are_free() -> bool:
    """Whether hundreds of gigabytes can be mapped that are never touched."""
    if sys.platform != "linux":
        return False
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def realised(request: Request, op: str, dtype: str, values: dict[str, Any], number: int) -> Case:
    """The case of an assignment of values to dimensions; a width of its class and a shape of its rank are drawn."""
    draw = random.Random(f"{request.seed}/{op}/{dtype}/{sorted((k, str(v)) for k, v in values.items())}")
    declared = operator(op)
    rows, name = values["rows"], values["width"]
    among = request.widths if name == ASKED else members(name, request.most, FORMATS[dtype].itemsize, request.few_forms)
    light = [width for width in among if width * rows <= LIGHT]
    out = values["out"]
    numbers = {p.name: values[p.name] for p in declared.parameters}
    weight_dtype = values.get("weight dtype", dtype)
    return request.template(
        op,
        dtype,
        draw.choice(light) if light else min(among),
        values["regime"],
        shape(rows, values["rank"], draw),
        weights=values.get("weights", "usual"),
        weight_dtype=None if weight_dtype == dtype else weight_dtype,
        padding=tuple((b, values[f"padding of {b}"]) for b in row_buffers(declared, out) if values[f"padding of {b}"]),
        misaligned=tuple(b for b in (*row_buffers(declared, out), *declared.vectors) if values[f"misaligned {b}"]),
        out=out,
        contract=next(each for each in request.held_to(op) if each.code == values["contract"]),
        **numbers,
        origin=f"array:{number}",
    )


def shape(rows: int, rank: int, draw: random.Random) -> tuple[int, ...]:
    """A shape of `rank` - 1 numbers that is so many rows: a product where there is one, else one number among ones."""
    lead = [1] * (rank - 1)
    if not rows:
        lead = [draw.choice((1, 2, 3)) for _ in lead]
        lead[draw.randrange(len(lead))] = 0
        return tuple(lead)
    rest = rows
    for place in range(len(lead) - 1):
        factors = [n for n in range(2, int(rest**0.5) + 1) if rest % n == 0]
        if factors:
            lead[place] = draw.choice(factors)
            rest //= lead[place]
    if lead:
        lead[-1] = rest
    draw.shuffle(lead)
    return tuple(lead)


def random_case(request: Request, op: str, dtype: str, number: int) -> Case:
    """The `number`-th random case of a group: a width, a shape, a layout, a regime and numbers, each drawn apart.

    No wider than `request.most`, and of one of the numbers of rows that were asked for.
    """
    draw = random.Random(f"{request.seed}/{op}/{dtype}/{number}")
    declared = operator(op)
    most = min(request.most, 2**13)
    width = draw.choice((draw.randint(1, min(300, most)), round(most ** draw.random()), min(most, 8 * draw.randint(1, 512))))
    if request.few_forms:
        width = nearest_shared(width, FORMATS[dtype].itemsize)
    most_rows = max(1, min(16, 32768 // width))
    rank = draw.choice((1, 2, 3, 4))
    rows = draw.choice(request.rows) if request.rows is not None else draw.randint(1, most_rows) if rank > 1 else 1
    rank = rank if rows == 1 else max(2, rank)
    out = draw.choice(request.outs(op))
    buffers = row_buffers(declared, out)
    paddings = {name: draw.choice((0, 0, 1, 8, 24)) for name in buffers if rank > 1}
    contract = draw.choice(request.held_to(op))
    return request.template(
        op,
        dtype,
        width,
        draw.choice(request.regimes_of(op)),
        shape(rows, rank, draw),
        weights=draw.choice(weights_of(declared)),
        padding=tuple((name, elements) for name, elements in paddings.items() if elements),
        misaligned=tuple(name for name in (*buffers, *declared.vectors) if draw.random() < 0.2),
        out=out,
        weight_dtype="fp32" if declared.vectors and dtype != "fp32" and draw.random() < 0.25 else None,
        contract=contract,
        eps=draw.choice((contract.eps, contract.eps, *OTHER_EPS)) if EPS in declared.parameters else contract.eps,
        **{p.name: draw.choice((contract.value(p.name), p.other)) for p in declared.parameters if p != EPS},
        origin=f"random:{number}",
    )
