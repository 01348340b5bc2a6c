"""The names of one function: which are its own, and what the others stand for."""

from __future__ import annotations

import ast
import builtins
import types as python_types
from typing import Any

from numba import cuda

from .program import UNKNOWN, Program
from .source import definition_of, python_function
from .spins import SPIN_NAME, mark_spins
from .targets import GRID_SYNC, SPIN


class Scope:
    """A function about to be rewritten.

    State: ``function`` (plain), its ``name``, ``file`` and ``tree`` (its definition, in which loops that may spin begin with a
    mark, see spins.py); ``parameters``, in order; ``stored``, the names that it assigns; ``captured``, the values of its closure;
    ``grids``, variables that hold ``cg.this_grid()``. What an inlined call binds its parameters to, each to one of three:
    ``statics``, a constant; ``aliases``, a variable of the caller; ``substituted``, an expression used once.
    """

    def __init__(self, program: Program, function: Any) -> None:
        self.function = python_function(function)
        self.name = self.function.__name__
        self.tree, self.file = definition_of(program, self.function)
        self.parameters = [a.arg for a in self.tree.args.posonlyargs + self.tree.args.args]
        self.stored = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.captured = {}
        for name, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True):
            try:
                self.captured[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        self.statics: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self.substituted: dict[str, ast.expr] = {}
        self.grids: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and self._is_grid(node.value):
                self.grids.update(target.id for target in node.targets if isinstance(target, ast.Name))
        mark_spins(program, self)

    def value(self, node: ast.AST) -> Any:
        """What a name or dotted name stands for outside the function, or UNKNOWN."""
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            if node.attr == "sync" and self._is_grid(node.value):
                return GRID_SYNC
            base = self.value(node.value)
            if base is UNKNOWN or not isinstance(base, python_types.ModuleType | type):
                return UNKNOWN
            value = getattr(base, node.attr, UNKNOWN)
            return UNKNOWN if isinstance(value, property) else value
        return UNKNOWN

    def _is_grid(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.grids
        return isinstance(node, ast.Call) and self.value(node.func) is cuda.cg.this_grid

    def _named(self, name: str) -> Any:
        if name == SPIN_NAME:
            return SPIN
        if name in self.statics:
            return self.statics[name]
        if name in self.stored or name in self.parameters:
            return UNKNOWN
        if name in self.captured:
            return self.captured[name]
        return self.function.__globals__.get(name, getattr(builtins, name, UNKNOWN))
