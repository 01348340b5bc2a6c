"""The dimensions of a call, each with its values from plain to odd; which values of two can't occur together.

The one table that the covering array is generated from, that the report counts what was covered by, and that a failing case is
made plainer along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from difftest.cases import regimes, weights, widths
from difftest.cases.case import OUT_GIVEN, OUT_NONE, Case, row_buffers
from difftest.cases.request import Request
from reference.formats import FORMATS
from reference.operators import operator
from reference.operators.declaration import EPS

ROWS = (1, 2, 3, 7, 24, 31, 33, 257, 0)  # 24 has planes of every rank; 33 is a warp and one; 257 a block and one
MANY_ROWS = 65537  # on request: beyond a grid's 65 535 in y and z
RANKS = (2, 1, 3, 4)
PADDINGS = (0, 8, 3)  # 8 keeps a row on its 16 bytes, 3 does not
OTHER_EPS = (EPS.other, 1e-3, 1e-8)
ASKED = "asked for"  # the class of the widths that were asked for
NARROW = 128  # the widest row of a call of MANY_ROWS and more
FEW_VALUES = 8  # in a narrower row, a family of weights with special values may leave no other


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension by name, with its values from plain to odd.

    `of` says which of them a case has: one, several for the classes of its width, or none. `left_out`: what else it could be,
    and the option that asks for that, for the report.
    """

    name: str
    values: tuple[Any, ...]
    of: Callable[[Case], Sequence[Any]]
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Values of two dimensions that can't occur together: `excludes` of two values, in the order of `names`."""

    names: tuple[str, str]
    excludes: Callable[[Any, Any], bool]
    why: str


def dimensions(request: Request, op: str, dtype: str) -> tuple[Dimension, ...]:
    """The dimensions of an operator's calls that a request leaves open, in a fixed order."""
    declared = operator(op)
    found = [
        Dimension("rows", _rows(request), lambda case: (case.rows,), _rows_left_out(request)),
        Dimension("rank", _ranks(request), lambda case: (1 + len(case.lead),)),
        _width(request, dtype),
        Dimension("regime", tuple(request.regimes_of(op)), lambda case: (case.regime,)),
    ]
    if declared.vectors:
        formats = (dtype,) if dtype == "fp32" else (dtype, "fp32")
        found.append(Dimension("weights", weights.names(declared), lambda case: (case.weights,)))
        found.append(Dimension("weight dtype", formats, lambda case: (case.weight_format.name,)))
    for parameter in declared.parameters:
        asked = request.contracts[op].value(parameter.name)
        others = OTHER_EPS if parameter == EPS else (parameter.other, parameter.default)
        own = [regimes.REGIMES[name].numbers.get(parameter.name, asked) for name in request.regimes_of(op)]
        found.append(Dimension(parameter.name, tuple(dict.fromkeys((asked, *others, *own))), _value_of(parameter.name)))
    found.append(_contract(request, op))
    out = request.outs(op)
    without = "" if len(out) > 1 or declared.mutated else "the candidate takes none"
    found.append(Dimension("out", out, lambda case: (case.out,), without))
    rows = row_buffers(declared, OUT_GIVEN if OUT_GIVEN in out else OUT_NONE)
    found += [Dimension(f"padding of {name}", PADDINGS, _padding_of(name)) for name in rows]
    found += [Dimension(f"misaligned {name}", (False, True), _misaligned(name)) for name in (*rows, *declared.vectors)]
    return _possible([each for each in found if each.values])


def _possible(model: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Without values that go with none of another dimension: an eps for which the one regime asked for is not made."""

    def goes(name: str, value: Any) -> bool:
        others = (d for d in model if d.name != name)
        return all(any(not exclude((name, value), (d.name, other)) for other in d.values) for d in others)

    return tuple(replace(d, values=tuple(value for value in d.values if goes(d.name, value))) for d in model)


EXCLUSIONS = (
    Exclusion(("rank", "rows"), lambda rank, rows: rank == 1 and rows != 1, "a 1-D tensor is one row"),
    Exclusion(("rank", "padding of *"), lambda rank, padding: rank == 1 and padding != 0, "a 1-D tensor has no row stride"),
    Exclusion(("out", "padding of output"), lambda out, padding: out != OUT_GIVEN and padding != 0, "no `out` of its own"),
    Exclusion(("out", "misaligned output"), lambda out, off: out != OUT_GIVEN and off, "no `out` of its own"),
    Exclusion(
        ("regime", "eps"),
        lambda name, eps: (
            eps != regimes.REGIMES[name].numbers.get("eps", eps) or (eps == 0.0 and "eps" not in regimes.REGIMES[name].numbers)
        ),
        "a regime that is made for one eps, and an eps of 0 for that one alone",
    ),
    Exclusion(
        ("rows", "width"), lambda rows, name: rows >= 257 and name == "above 4096", "a million elements: --rows 257 --widths 5000"
    ),
    Exclusion(
        ("rows", "width"),
        lambda rows, name: rows >= MANY_ROWS and name in ("multiple of 1024", "beyond one block", "above 4096"),
        "that many rows are narrow",
    ),
)


@cache
def exclude(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    """Whether two (dimension, value) can't occur together."""
    return _directed(one, other) or _directed(other, one)


# Values that hide those of the other dimensions: no rows, or outputs that say nothing of the rest.
HIDING = frozenset({("rows", 0), ("regime", "zeros"), ("weights", "subnormal")})


def hiding(case: Case) -> frozenset[str]:
    """The dimensions whose value hides the others'. Of such a case only what includes all of them counts as covered."""
    values = {"rows": case.rows, "regime": case.regime, "weights": case.weights}
    found = {name for name, value in values.items() if (name, value) in HIDING}
    if case.weights in ("zeros", "inf_nan") and case.width < FEW_VALUES:
        found.add("weights")
    return frozenset(found)


def _directed(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    return any(_named(one[0], e.names[0]) and _named(other[0], e.names[1]) and e.excludes(one[1], other[1]) for e in EXCLUSIONS)


def _named(name: str, pattern: str) -> bool:
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def _rows(request: Request) -> tuple[int, ...]:
    return tuple(request.rows) if request.rows is not None else ROWS


def _rows_left_out(request: Request) -> str:
    if request.rows is not None:
        return "other numbers, without --rows"
    return (
        f"more than {max(ROWS)}, --rows {MANY_ROWS} --widths 3; {max(ROWS)} of rows above 4096, --rows {max(ROWS)} --widths 5000"
    )


def _ranks(request: Request) -> tuple[int, ...]:
    return tuple(rank for rank in RANKS if rank != 1 or 1 in _rows(request))


def _width(request: Request, dtype: str) -> Dimension:
    itemsize, most = FORMATS[dtype].itemsize, request.most
    names = [each.name for each in widths.CLASSES if widths.members(each.name, most, itemsize, request.few_forms)]
    holding = {each.name: each.holds for each in widths.CLASSES}

    def of(case: Case) -> tuple[str, ...]:
        classes = tuple(name for name in names if holding[name](case.width))
        return (ASKED, *classes) if case.width in request.widths else classes

    return Dimension("width", (ASKED, *names), of, f"wider than {most}, --widths {2 * most}")


def _contract(request: Request, op: str) -> Dimension:
    codes = tuple(each.code for each in request.held_to(op))
    others = [code for code in operator(op).codes if code not in codes]
    without = f"{', '.join(others)}, --contract {others[0]}" if others else ""
    return Dimension("contract", codes, lambda case: (case.contract.code,), without)


def _value_of(parameter: str) -> Callable[[Case], Sequence[Any]]:
    return lambda case: (case.contract.value(parameter),)


def _padding_of(buffer: str) -> Callable[[Case], Sequence[Any]]:
    return lambda case: (case.padding_of(buffer),)


def _misaligned(buffer: str) -> Callable[[Case], Sequence[Any]]:
    return lambda case: (buffer in case.misaligned,)
