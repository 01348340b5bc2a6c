"""A function's body without its returns, so that it can be written out where it is called.

It becomes the body of a loop that runs once: a return assigns the result, or nothing, and leaves. Inside a loop of the function's
own it also sets a variable, at which the loops around it leave too.
"""

from __future__ import annotations

import ast

from .statements import load, location_of

LOOPS = (ast.For, ast.While)


def returns_early(body: list[ast.stmt]) -> bool:
    """Whether a body returns elsewhere than in its last statement."""
    return any(isinstance(n, ast.Return) for s in body[:-1] for n in ast.walk(s)) or (
        bool(body) and not isinstance(body[-1], ast.Return) and has_return(body[-1])
    )


def has_return(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(statement))


def without_returns(body: list[ast.stmt], result: str, left: str) -> list[ast.stmt]:
    """The body, which leaves its value in the variable ``result``; ``left``: the variable that says that it has returned."""
    returns = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Return)]
    gives = any(n.value is not None for n in returns)
    made = _left(body, result if gives else None, left, inside=False)
    if gives and falls_through(body):
        made.append(_placed(_assignment(result, ast.Constant(None)), body[-1]))
    made.append(_placed(ast.Break(), body[-1]))
    loop = _placed(ast.While(ast.Constant(True), made, []), body[0])
    start = _placed(_assignment(left, ast.Constant(False)), body[0])
    return [start, loop] if any(isinstance(n, ast.Name) and n.id == left for s in made for n in ast.walk(s)) else [loop]


def _left(body: list[ast.stmt], result: str | None, left: str, *, inside: bool) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Return):
            if result is not None:
                made.append(_placed(_assignment(result, statement.value or ast.Constant(None)), statement))
            if inside:
                made.append(_placed(_assignment(left, ast.Constant(True)), statement))
            made.append(_placed(ast.Break(), statement))
            continue
        is_loop = isinstance(statement, LOOPS)
        leaves = is_loop and has_return(statement)
        for part in ("body", "orelse"):
            inner = getattr(statement, part, None)
            if inner:  # a loop's else is outside the loop
                setattr(statement, part, _left(inner, result, left, inside=inside or (is_loop and part == "body")))
        made.append(statement)
        if leaves:
            made.append(_placed(ast.If(load(left), [ast.Break()], []), statement))
    return made


def falls_through(body: list[ast.stmt]) -> bool:
    """Whether a body may end without a return or a raise."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return falls_through(last.body) or falls_through(last.orelse)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return any(_breaks(s) for s in last.body)
    return not isinstance(last, ast.Return | ast.Raise)


def _breaks(statement: ast.stmt) -> bool:
    """Whether a statement leaves the loop that it stands in."""
    parts = [] if isinstance(statement, LOOPS) else getattr(statement, "body", [])
    return isinstance(statement, ast.Break) or any(_breaks(s) for s in [*parts, *getattr(statement, "orelse", [])])


def _assignment(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _placed(statement: ast.stmt, at: ast.stmt) -> ast.stmt:
    """The statement, at the location of another, all of it that has none."""
    for node in ast.walk(statement):
        if not hasattr(node, "at"):
            node.at = location_of(at)  # type: ignore[attr-defined]
    return statement
