"""Functions that a program makes from strings, with ``exec``, keep their source, which the emulator reads."""

from __future__ import annotations

import builtins
import itertools
import linecache
import sys
from collections.abc import Callable
from typing import Any

_number = itertools.count()


def exec_that_keeps(text: Any, globals: Any = None, locals: Any = None, /, **options: Any) -> None:
    """``exec``; a string's text can be read afterwards, as that of a file can."""
    if globals is None:
        around = sys._getframe(1)
        globals, locals = around.f_globals, around.f_locals if locals is None else locals
    if isinstance(text, str):
        name = f"<exec {next(_number)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        text = compile(text, name, "exec", dont_inherit=True)
    _exec(text, globals, locals, **options)


_exec: Callable[..., None] = builtins.exec
