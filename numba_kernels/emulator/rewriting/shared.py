"""Device functions that are compiled by themselves, compiled once for all kernels that call them.

Kernels of a family differ in a few numbers and call mostly the same functions. Two of these are the same where their rewritten
source is, names of captured values aside, and the values are.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from .. import disk_cache, instructions
from ..words import njit

GENERATED = re.compile(r"__([A-Za-z]\w*?)_?\d+")
_made: dict[str, Any] = {}  # by name, which says all that the code depends on


def shared(definition: ast.FunctionDef, file: str, namespace: dict[str, Any], options: dict[str, Any]) -> str | None:
    """The name of a rewritten function in ``namespace``, where its compiled form now stands; None: it can't be told from others.

    The definition's generated names are renumbered in their order, so that nothing in it is the program's.
    """
    captured = _renumbered(definition, namespace)
    name, definition.name = definition.name, "_"
    content = (ast.unparse(definition), sorted(captured.items()), sorted(options.items()))
    try:
        definition.name = f"{name}_{disk_cache.digest(content)}"
    except disk_cache.NotDigestible:
        return None
    if definition.name not in _made:
        others = {n.id: namespace[n.id] for n in ast.walk(definition) if isinstance(n, ast.Name) and n.id in _made}
        own = {**instructions.BY_NAME, "__name__": __name__, **captured, **others}
        exec(compile(ast.Module([definition], []), file, "exec"), own)
        _made[definition.name] = njit(**options)(own[definition.name])
    namespace[definition.name] = _made[definition.name]
    return definition.name


def is_shared(name: str) -> bool:
    """Whether a program's function is a shared one, whose name says what it is."""
    return name in _made


def _renumbered(definition: ast.FunctionDef, namespace: dict[str, Any]) -> dict[str, Any]:
    """Gives generated names their number in this function; the captured values, by their new names."""
    names: dict[str, str] = {}
    captured: dict[str, Any] = {}
    for node in ast.walk(definition):
        if not isinstance(node, ast.Name):
            continue
        old, found = node.id, GENERATED.fullmatch(node.id)
        if found is None:
            if old in namespace and old not in instructions.BY_NAME and old not in _made:
                captured[old] = namespace[old]
            continue
        node.id = names.setdefault(old, f"__{found[1]}_{len(names)}")
        if old in namespace:
            captured[node.id] = namespace[old]
    return captured
