"""The names of one function: which are its own, and what the others stand for."""

from __future__ import annotations

import ast
import builtins
import copy
import types as python_types
from collections import Counter
from typing import Any

from numba import cuda

from .. import half
from .constants import constant
from .program import UNKNOWN, Program
from .source import LocalFunction, definition_of, is_device_function, own_nodes, python_function
from .spins import SPIN_NAME, mark_spins
from .starred import spread_out
from .targets import GRID_SYNC, SPIN


class Scope:
    """A function about to be rewritten.

    State: ``function`` (plain), its ``name``, ``file`` and ``tree`` (its definition, in which loops that may spin begin with a
    mark, see spins.py); ``parameters``, in order; ``stored``, the names that it assigns; ``captured``, the values of its closure;
    ``functions``, what those of its names stand for that are inner functions, lambdas, or other names of device functions;
    ``once``, the expressions of variables that are assigned once; ``dtypes``, those of parameters that are arrays, where known;
    ``grids``, variables that hold ``cg.this_grid()``; ``prefix``, before the final name of each of its variables; ``around``, the
    scope in which its defaults are read. What an inlined call binds its parameters to, each to one of three: ``statics``, a
    constant or a function; ``aliases``, a variable of the caller; ``substituted``, an expression used once. ``given``: how many
    arguments by position a call gives it, which says what ``*args`` holds.
    """

    def __init__(self, program: Program, function: Any, given: int = 0) -> None:
        self.function = python_function(function)
        self.name = self.function.__name__
        self.tree, self.file = definition_of(program, self.function)
        spread_out(program, self.tree, given)
        self.around: Scope = self
        self.captured = {}
        for name, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True):
            try:
                self.captured[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        self._read_tree(program)

    def _read_tree(self, program: Program) -> None:
        self.program = program
        nodes = list(own_nodes(self.tree))
        stores = Counter(n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        stores.update(n.name for n in nodes if isinstance(n, ast.FunctionDef))
        self.parameters = [a.arg for a in self.tree.args.posonlyargs + self.tree.args.args]
        self.stored = set(stores)
        self.prefix = ""
        self.statics: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self.substituted: dict[str, ast.expr] = {}
        self.grids: set[str] = set()
        self.functions: dict[str, Any] = {}
        self.once: dict[str, ast.expr] = {}
        self.dtypes: dict[str, Any] = {}
        for node in nodes:
            name, value = self._function_in(node)
            if name is not None:
                if stores[name] > 1 or name in self.parameters:
                    raise program.refusal(f"{name} is an inner function and is also assigned otherwise", node.at)  # type: ignore[attr-defined]
                self.functions[name] = value
            self.once.update((n, value) for n, value in assigned(node) if stores[n] == 1)
            if isinstance(node, ast.Assign) and self._is_grid(node.value):
                self.grids.update(target.id for target in node.targets if isinstance(target, ast.Name))
        mark_spins(program, self, scope_of)

    def _function_in(self, node: ast.AST) -> tuple[str | None, Any]:
        """The name and value of an inner function that a statement defines; (None, None) where it defines none."""
        if isinstance(node, ast.FunctionDef):
            return node.name, LocalFunction(node, self)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = self.value(node.value)
            if is_device_function(value):
                return node.targets[0].id, value
        return None, None

    def value(self, node: ast.AST) -> Any:
        """What a name or dotted name stands for outside the function, or UNKNOWN; of a lambda, itself."""
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.Lambda):
            return LocalFunction(node, self)
        if isinstance(node, ast.Attribute):
            if node.attr == "sync" and self._is_grid(node.value):
                return GRID_SYNC
            base = self.value(node.value)
            if base is cuda and node.attr == half.MODULE:
                return half.module()
            if base is UNKNOWN or not isinstance(base, python_types.ModuleType | type):
                return UNKNOWN
            value = getattr(base, node.attr, UNKNOWN)
            return UNKNOWN if isinstance(value, property) else value
        return UNKNOWN

    def _is_grid(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.grids
        return isinstance(node, ast.Call) and self.value(node.func) is cuda.cg.this_grid

    def is_own(self, name: str) -> bool:
        return name in self.stored or name in self.parameters

    def named(self, name: str) -> Any:
        if name == SPIN_NAME:
            return SPIN
        for known in (self.statics, self.functions):
            if name in known:
                return known[name]
        return UNKNOWN if self.is_own(name) else self.outside(name)

    def settled(self, node: ast.AST) -> Any:
        """The constant that an expression of names has, of which some may be variables that are assigned once; or UNKNOWN."""
        return constant(self._settled_name, node)

    def _settled_name(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name) and node.id in self.once and node.id not in self.parameters:
            return self.settled(self.once[node.id])
        if isinstance(node, ast.Attribute) and node.attr == "dtype" and isinstance(node.value, ast.Name):
            found = self.dtypes.get(node.value.id, UNKNOWN)
            if found is not UNKNOWN:
                self.program.asked_dtypes.add(self.aliases.get(node.value.id, node.value.id))
            return found
        return self.value(node)

    def outside(self, name: str) -> Any:
        """What a name stands for that is not the function's own."""
        if name in self.captured:
            return self.captured[name]
        return self.function.__globals__.get(name, getattr(builtins, name, UNKNOWN))

    def variable(self, name: str) -> ast.expr:
        """What reads a variable."""
        if name in self.substituted:
            return self.substituted[name]
        return ast.Name(self.aliases.get(name, self.prefix + name), ast.Load())


class LocalScope(Scope):
    """An inner function or a lambda, whose other names are those of the function ``around`` it."""

    def __init__(self, program: Program, function: LocalFunction, given: int = 0) -> None:
        self.function, self.name, self.around = function, function.__name__, function.around
        self.tree, self.file = copy.deepcopy(function.tree), self.around.file
        function.check(program)
        spread_out(program, self.tree, given)
        self._read_tree(program)
        self.grids |= self.around.grids

    def outside(self, name: str) -> Any:
        return self.around.named(name)

    def variable(self, name: str) -> ast.expr:
        return super().variable(name) if self.is_own(name) else self.around.variable(name)


def assigned(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """The names that a statement assigns, each with its expression."""
    if not isinstance(node, ast.Assign):
        return []
    pairs = []
    for target in node.targets:
        if isinstance(target, ast.Name):
            pairs.append((target.id, node.value))
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
            pairs += [(t.id, v) for t, v in zip(target.elts, node.value.elts, strict=True) if isinstance(t, ast.Name)]
    return pairs


def scope_of(program: Program, function: Any, given: int = 0) -> Scope:
    """A device function's scope, of its own, for a call with so many arguments by position."""
    return (LocalScope if isinstance(function, LocalFunction) else Scope)(program, function, given)
