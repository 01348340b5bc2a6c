"""A mutant in the place of the original, in this process and for the rest of its life: a process to be thrown away."""

from __future__ import annotations

import linecache
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

PACKAGE = "numba_kernels"


def install(module_name: str, text: str) -> ModuleType:
    """Runs a module of the kernels' package anew from `text`, and gives whoever has imported a name from it the new one.

    The text goes under the file's own name: what is compiled of the rest is then the same, names and lines included. So
    nothing that is compiled from here on may be kept on disk. Raises what the text raises.
    """
    from difftest.mutants.machine import faults

    module = import_module(module_name)
    before = dict(vars(module))
    file = str(module.__file__)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    vars(module).update(faults.ALL)
    exec(compile(text, file, "exec"), vars(module))
    for name, old in before.items():
        if not name.startswith("__") and vars(module)[name] is not old:
            _rename(module, name, old)
    return module


def _rename(module: ModuleType, name: str, old: Any) -> None:
    for other_name, other in list(sys.modules.items()):
        if other is not module and other_name.startswith(PACKAGE + ".") and vars(other).get(name) is old:
            setattr(other, name, vars(module)[name])
