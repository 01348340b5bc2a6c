"""Blocks made of declarations: the operators, and who claims which contract."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numba_kernels
from difftest.cases.regimes import REGIMES
from difftest.report.table import Table, markdown
from reference.operators import OPERATORS, Operator, Role
from reference.providers.claims import CLAIMS, Claim, libraries

CONTROLS = ("contract", "enable_pdl")  # which every operator takes
WHERE_TESTED = {"cpu": "its outputs, on a CPU", "gpu": "its outputs, on a GPU", "": "-"}


def operators(page: Path) -> str:
    """Every operator: signature, formula, shapes, what is written in place, contracts."""
    heads = ("operator", "formula", "shapes", "written in place", "contracts")
    return markdown(Table("", heads, tuple(_operator(op) for op in OPERATORS.values()), names=len(heads)))


def _operator(op: Operator) -> tuple[str, ...]:
    function = getattr(numba_kernels, op.name)
    named = [p for p in inspect.signature(function).parameters.values() if p.name not in CONTROLS]
    words = [p.name if p.default is p.empty else f"{p.name}={_plain(p.default)}" for p in named]
    formula = re.match(r"``[^`]+``(, ``[^`]+``)*", inspect.getdoc(function) or "")
    assert formula, f"the docstring of {op.name} begins with its formula, in double backticks"
    in_place = ", ".join(f"`{name}`" for name in op.mutated) or ("nothing, or `out`" if "out" in (p.name for p in named) else "")
    return (
        f"`{op.name}({', '.join(words)})`",
        formula.group().replace("``", "`"),
        _shapes(op),
        in_place,
        ", ".join(op.codes),
    )


def _plain(value: object) -> str:
    """A default as it would be typed."""
    return re.sub(r"e-0", "e-", repr(value))


def _shapes(op: Operator) -> str:
    """Each tensor's shape, those of one shape together; then the output's, where it is one of its own."""
    by_shape: dict[str, list[str]] = {}
    for name in op.inputs:
        row = "width" if op.row_length(name, 1) == 1 else f"{op.row_length(name, 1)} · width"
        if any(each.name == name and each.role is Role.PAIRS for each in op.tensors):
            row += ", interleaved"
        by_shape.setdefault(f"({row},)" if name in op.vectors else f"(…, {row})", []).append(name)
    if not op.mutated:
        by_shape.setdefault("(…, width)", []).append("out")
    return "; ".join(f"{', '.join(f'`{name}`' for name in names)}: {shape}" for shape, names in by_shape.items())


def inputs(page: Path) -> str:
    """Every regime of inputs: which operators get it, and the fault that it is there for."""
    rows = ((f"`{each.name}`", (each.needs.__doc__ or "").strip().rstrip("."), each.why) for each in REGIMES.values())
    return markdown(Table("", ("regime", "for", "why"), tuple(rows), names=3))


def claims(page: Path) -> str:
    """The contract of every library for every operator, one column for each group of operators that always agree."""
    groups = _groups_that_agree()
    heads = ("library", *(", ".join(f"`{op}`" for op in group) for group in groups), "held against")
    rows = []
    for library in dict.fromkeys(claim.library for claim in CLAIMS):
        mine = [claim for claim in CLAIMS if claim.library == library]
        rows.append((library, *(_codes(mine, group) for group in groups), _tested(mine)))
    return markdown(Table("", heads, tuple(rows), names=len(heads)))


def _groups_that_agree() -> list[tuple[str, ...]]:
    """The operators, those for which the same libraries claim the same codes put together."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name, op in OPERATORS.items():
        found.setdefault((op.codes, *((lib, _code(lib, op)) for lib in libraries(op))), []).append(name)
    return [tuple(group) for group in found.values()]


def _code(library: str, op: Operator) -> str:
    return next(claim.code for claim in CLAIMS if claim.library == library and op.name in claim.ops)


def _codes(mine: list[Claim], group: tuple[str, ...]) -> str:
    return ", ".join(dict.fromkeys(claim.code for claim in mine if set(group) & set(claim.ops))) or "-"


def _tested(mine: list[Claim]) -> str:
    return ", ".join(WHERE_TESTED[where] for where in dict.fromkeys(claim.tested for claim in mine))
