"""Loops in which a thread may wait for another one, without a barrier: each turn lets the others run.

Such is a ``while`` loop with an atomic or a ``nanosleep`` in it, or whose condition reads memory; not one with a barrier, and not
one that counts: whose condition compares a variable that the body steps on.
"""

from __future__ import annotations

import ast
from typing import Any

from numba import cuda

from .program import Program
from .source import is_device_function, own_nodes
from .targets import ATOMICS, COLLECTIVES, is_hashable

SPIN_NAME = "__spin"


def mark_spins(program: Program, scope: Any, scope_of: Any) -> None:
    """Put a call of the mark before each turn of a loop that may spin, and note in the program whether such a loop stores.
    ``scope_of``: makes a device function's scope."""
    for loop in [n for n in own_nodes(scope.tree) if isinstance(n, ast.While)]:
        if not may_spin(program, scope, loop, scope_of):
            continue
        call = ast.Call(ast.Name(SPIN_NAME, ast.Load()), [], [])
        mark = ast.Expr(call)
        for node in ast.walk(mark):
            node.at = loop.at  # type: ignore[attr-defined]
        loop.body.insert(0, mark)
        program.spins = True
        if any(isinstance(n, ast.Subscript | ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(loop)):
            program.spins_store = True


def may_spin(program: Program, scope: Any, loop: ast.While, scope_of: Any) -> bool:
    calls = [scope.value(n.func) for n in ast.walk(loop) if isinstance(n, ast.Call)]
    known = [value for value in calls if is_hashable(value)]
    if any(value in COLLECTIVES and value is not cuda.nanosleep for value in known) or counts(loop):
        return False
    if any(value in ATOMICS or value is cuda.nanosleep for value in known):
        return True
    if any(is_device_function(value) and has_atomics(program, scope_of, value, (scope.function,)) for value in calls):
        return True
    tests = [loop.test] if not isinstance(loop.test, ast.Constant) else [n.test for n in ast.walk(loop) if isinstance(n, ast.If)]
    return any(isinstance(n, ast.Subscript) for test in tests for n in ast.walk(test)) and not steps(loop)


def counts(loop: ast.While) -> bool:
    """Whether the condition compares a variable that the body adds to, each turn."""
    compared = {n.id for n in ast.walk(loop.test) if isinstance(n, ast.Name)} if isinstance(loop.test, ast.Compare) else set()
    return any(isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id in compared for s in loop.body)


def steps(loop: ast.While) -> bool:
    """Whether each turn steps on a variable that the condition uses: a search."""
    used = {n.id for n in ast.walk(loop.test) if isinstance(n, ast.Name)}
    stored = {n.id for s in ast.walk(loop) for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bool(used & stored)


def has_atomics(program: Program, scope_of: Any, function: Any, callers: tuple[Any, ...]) -> bool:
    """Whether a device function, or one that it calls, has an atomic."""
    scope = scope_of(program, function)
    if scope.function in callers:
        return False
    for node in ast.walk(scope.tree):
        if isinstance(node, ast.Call):
            value = scope.value(node.func)
            if is_hashable(value) and (value in ATOMICS or value is cuda.nanosleep):
                return True
            if is_device_function(value) and has_atomics(program, scope_of, value, (*callers, scope.function)):
                return True
    return False


def is_marked(loop: ast.While) -> bool:
    first = loop.body[0] if loop.body else None
    call = first.value if isinstance(first, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == SPIN_NAME
