"""Calls of device functions: one that waits is written out where it is called, and so is a single ``return``; any other is
compiled by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .flatten import Flatten, waits_inside
from .fold import Fold, constant
from .names import Names
from .program import UNKNOWN, Location, Program
from .scope import Scope
from .source import is_device_function, python_function
from .statements import StatementPass, is_simple, load, location_of


class Inline(StatementPass):
    """State: ``callers``, the functions in which the code is written that is rewritten now; ``compile_alone``, which gives the
    name of a device function that is compiled by itself."""

    def __init__(self, program: Program, callers: tuple[Any, ...], compile_alone: Callable[[Scope, tuple], str]) -> None:
        super().__init__(program)
        self.callers, self.compile_alone = callers, compile_alone

    def do_Expr(self, node: ast.Expr) -> None:
        if not self.written_out(node.value, None):
            value = self.expression(node.value)
            if not is_simple(value):
                self.emit(ast.Expr(value))

    def do_Assign(self, node: ast.Assign) -> None:
        if not self.written_out(node.value, node.targets[0]):
            self.emit(ast.Assign([self.expression(t) for t in node.targets], self.expression(node.value)))

    def expression(self, node: ast.expr) -> ast.expr:
        made = self.rebuilt(node)
        function = self.device_function(node)
        if function is None:
            return made
        scope = Scope(self.program, function)
        arguments = self.bind(made, scope)  # type: ignore[arg-type]
        expression = self.single_expression(scope, arguments)
        if expression is not None:
            return expression
        name = self.compile_alone(scope, self.callers)
        return ast.Call(load(name), [load("__t"), load("__env"), *arguments.values()], [])

    def device_function(self, node: ast.expr) -> Any:
        """The plain device function that an expression calls; None where it calls none."""
        target = self.program.value(node.func) if isinstance(node, ast.Call) else UNKNOWN
        if not is_device_function(target):
            return None
        function = python_function(target)
        if function in self.callers:
            raise self.refusal(f"{function.__name__} calls itself", node)
        return function

    def bind(self, node: ast.Call, scope: Scope) -> dict[str, ast.expr]:
        """The argument of each parameter of a device function, in order."""
        given = dict(zip(scope.parameters, node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        defaults = scope.tree.args.defaults
        for name, value in zip(scope.parameters[len(scope.parameters) - len(defaults) :], defaults, strict=True):
            if name not in given:
                given[name] = Names(self.program, scope).expression(value)
        if set(given) != set(scope.parameters) or len(node.args) > len(scope.parameters):
            raise self.refusal(f"{scope.name} is called with the wrong arguments", node)
        return {p: given[p] for p in scope.parameters}

    def written_out(self, node: ast.expr, target: ast.expr | None) -> bool:
        """Write the body of a device function that waits in place of its call, its names prefixed, and assign what it returns to
        ``target``; False where the expression is no such call."""
        function = self.device_function(node)
        if function is None or not waits_inside(self.program, function, self.callers):
            return False
        scope = Scope(self.program, function)
        *body, last = scope.tree.body
        if not isinstance(last, ast.Return):
            body, last = scope.tree.body, ast.Return(None)
            last.at = location_of(node)  # type: ignore[attr-defined]
        for found in ast.walk(scope.tree):
            if isinstance(found, ast.Return) and found is not last:
                reason = f"{scope.name} contains a collective and returns before its end: one return, last, is supported"
                raise self.program.refusal(reason, Location(self.program.name, scope.file, found.lineno))
        prefix = f"{scope.name}_{self.program.fresh('')[2:]}_"
        for parameter, argument in self.bind(self.rebuilt(node), scope).items():  # type: ignore[arg-type]
            known = constant(self.program.value, argument)
            if parameter not in scope.stored and known is not UNKNOWN:
                scope.statics[parameter] = known
            elif parameter not in scope.stored and isinstance(argument, ast.Name):
                scope.aliases[parameter] = argument.id  # nothing in the callee can change the caller's variable
            else:
                self.assign(prefix + parameter, argument)
        here, callers, self.callers = self.here, self.callers, (*self.callers, function)
        *written, result = resolved(self.program, scope, [*body, last], prefix, self.callers)
        self.each(written)
        self.here = location_of(result)
        value = self.expression(result.value) if isinstance(result, ast.Return) and result.value else ast.Constant(None)
        if target is not None:
            self.emit(ast.Assign([target], value))
        elif not is_simple(value):
            self.emit(ast.Expr(value))
        self.here, self.callers = here, callers
        return True

    def single_expression(self, scope: Scope, arguments: dict[str, ast.expr]) -> ast.expr | None:
        """The call of a function that is one return statement, written out; None where an argument would be evaluated
        more or less than once. Compiling such a function by itself costs more than its text."""
        *before, last = scope.tree.body
        is_docstring = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in before)
        if self.program.tracked or not is_docstring or not isinstance(last, ast.Return) or last.value is None:
            return None
        uses = [n.id for n in ast.walk(last.value) if isinstance(n, ast.Name)]
        may_skip = any(isinstance(n, ast.IfExp | ast.BoolOp) for n in ast.walk(last))
        for parameter, argument in arguments.items():
            known = constant(self.program.value, argument)
            if known is not UNKNOWN:
                scope.statics[parameter] = known
            elif isinstance(argument, ast.Name):
                scope.aliases[parameter] = argument.id
            elif uses.count(parameter) == 1 and not may_skip:
                scope.substituted[parameter] = argument
            else:
                return None
        callers, self.callers = self.callers, (*self.callers, scope.function)
        value = self.expression(Names(self.program, scope).expression(Fold(scope).expression(last.value)))
        self.callers = callers
        return value


def resolved(
    program: Program, scope: Scope, body: list[ast.stmt], prefix: str, callers: tuple[Any, ...], *, kernel: bool = False
) -> list[ast.stmt]:
    """A body without dead branches, its names final, each of its waits a statement."""
    named = Names(program, scope, prefix, kernel=kernel).block(Fold(scope).statements(body))
    return Flatten(program, callers).block(named)
