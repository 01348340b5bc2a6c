"""Functions made from source text, as ``dataclasses`` makes ``__init__``: as fast as written by hand, and seen in tracebacks."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from typing import Any


def make_function(name: str, lines: list[str], **free: Any) -> Callable[..., Any]:
    """The function that ``lines`` define, ``def name(…):`` first; ``free`` are the variables that it closes over."""
    text = "".join(f"    {line}\n" for line in lines)
    text = f"def make({', '.join(free)}):\n{text}    return {name}\n"
    file = f"<numba_kernels.{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec"), scope)
    return scope["make"](**free)


def parameter_list(
    signature: inspect.Signature,
    *,
    positional: bool = False,
    first: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> str:
    """The text of a parameter list with the signature's defaults and without its annotations.

    ``positional``: none is keyword-only. ``first``: these come first, without a default. ``without``: these are left out.
    """
    bare = []
    for parameter in signature.parameters.values():
        kind = parameter.POSITIONAL_OR_KEYWORD if positional else parameter.kind
        if parameter.name not in (*first, *without):
            bare.append(parameter.replace(kind=kind, annotation=parameter.empty))
    return ", ".join([*first, str(inspect.Signature(bare))[1:-1]])
