"""Where a GPU's result may differ because its compiler makes a product and a sum one instruction, which rounds once.

The emulator rounds both. Which lines these are is read off what numba-cuda's front end makes of a kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

PRODUCTS = (operator.mul, operator.imul)
SUMS = (operator.add, operator.iadd, operator.sub, operator.isub)


def contracted(made: Any, seen: set[int]) -> set[tuple[str, int]]:
    """File and line of each sum of floats with a product in it, in a compiled function and those that it calls. ``seen``: the
    functions, by identity, that are done."""
    from numba.core import types

    if id(made) in seen:
        return set()
    seen.add(id(made))
    kinds, found = made.type_annotation.typemap, set(_sums(made.type_annotation.blocks, made.type_annotation.typemap))
    for kind in kinds.values():
        if isinstance(kind, types.Dispatcher):
            for inner in _overloads(kind):
                found |= contracted(inner, seen)
    return found


def _overloads(kind: Any) -> list[Any]:
    """The compiled forms of a function that another calls; none of a lambda's, which are gone."""
    try:
        return [made for made in kind.dispatcher.overloads.values() if hasattr(made, "type_annotation")]
    except ReferenceError:
        return []


def _sums(blocks: Any, kinds: Any) -> Iterator[tuple[str, int]]:
    """The sums in a function's blocks whose terms are products, by themselves or by a name."""
    from numba.core import types
    from numba.cuda.core import ir

    assigned = [s for block in blocks.values() for s in block.body if isinstance(s, ir.Assign)]
    operations = [s for s in assigned if isinstance(s.value, ir.Expr) and s.value.op in ("binop", "inplace_binop")]
    products = {s.target.name for s in operations if s.value.fn in PRODUCTS}
    products |= {s.target.name for s in assigned if isinstance(s.value, ir.Var) and s.value.name in products}
    for statement in operations:
        terms = {statement.value.lhs.name, statement.value.rhs.name}
        if statement.value.fn in SUMS and terms & products and isinstance(kinds.get(statement.target.name), types.Float):
            yield statement.loc.filename, statement.loc.line


def remark(kernel: str, places: list[tuple[str, int]]) -> str:
    """A note about those lines."""
    lines = ", ".join(str(line) for _, line in places)
    return (
        f"{kernel}: in line{'s' if len(places) > 1 else ''} {lines} a product and a sum are rounded one after the other; "
        "a GPU's compiler may make them one fma, and the last bit another"
    )
