"""Calls of device functions: one that waits, or that reads its caller's variables, is written out where it is called, and so is a
single ``return``; any other is compiled by itself.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from numba.core import types

from .constants import constant
from .flatten import Flatten, is_written_out
from .fold import Fold
from .names import Names
from .program import UNKNOWN, Program
from .returns import returns_early, without_returns
from .scope import Scope, scope_of
from .source import is_device_function, python_function
from .statements import StatementPass, is_simple, load, location_of

ITSELF = "__itself"  # the function that is compiled, in its own code


def is_function(value: Any) -> bool:
    """Whether a captured value can only be called, so that whoever is given it is written for it."""
    return is_device_function(value) or (callable(value) and not isinstance(value, types.Type))


class Inline(StatementPass):
    """State: ``callers``, the functions in which the code is written that is rewritten now; ``dtypes``,
    of variables that are arrays, where known; ``alone``, the function that is compiled by itself, and so may call itself;
    ``compile_alone``, which gives the
    name of a device function that is compiled by itself."""

    def __init__(
        self,
        program: Program,
        callers: tuple[Any, ...],
        dtypes: dict[str, Any],
        alone: Any,
        compile_alone: Callable[[Scope, tuple], str],
    ) -> None:
        super().__init__(program)
        self.callers, self.dtypes, self.alone, self.compile_alone = callers, dtypes, alone, compile_alone

    def do_Expr(self, node: ast.Expr) -> None:
        if not self.written_out(node.value, None):
            value = self.expression(node.value)
            if not is_simple(value):
                self.emit(ast.Expr(value))

    def do_Assign(self, node: ast.Assign) -> None:
        if not self.written_out(node.value, node.targets[0]):
            self.emit(ast.Assign([self.expression(t) for t in node.targets], self.expression(node.value)))

    def expression(self, node: ast.expr) -> ast.expr:
        function = self.device_function(node)
        if function is None:
            value = self.program.value(node)
            if is_device_function(value):
                raise self.refusal(f"the device function {python_function(value).__name__} as a value that is not called", node)
            return self.rebuilt(node)
        made = self.call_of(node)  # type: ignore[arg-type]
        if function in self.callers:
            arguments = self.bind(made, scope_of(self.program, function, len(made.args)))
            return ast.Call(load(ITSELF), [load("__t"), load("__env"), *arguments.values()], [])
        scope = scope_of(self.program, function, len(made.args))
        arguments = self.bind(made, scope)
        expression = self.single_expression(scope, arguments)
        if expression is not None:
            return expression
        if scope.statics or scope.aliases or scope.substituted:  # of the attempt to write it out
            scope = scope_of(self.program, function, len(made.args))
        for parameter in self.given_functions(arguments, scope):
            scope.statics[parameter] = self.program.value(arguments.pop(parameter))
        name = self.compile_alone(scope, self.callers)
        return ast.Call(load(name), [load("__t"), load("__env"), *arguments.values()], [])

    def call_of(self, node: ast.Call) -> ast.Call:
        """A copy of a call with its arguments rewritten, but for functions."""
        made = copy.copy(node)
        made.args = [self.argument(a) for a in node.args]
        made.keywords = [ast.keyword(k.arg, self.argument(k.value)) for k in node.keywords]
        return made

    def argument(self, node: ast.expr) -> ast.expr:
        return node if is_function(self.program.value(node)) else self.expression(node)

    def given_functions(self, arguments: dict[str, ast.expr], scope: Scope) -> list[str]:
        """The parameters of a device function that are given functions."""
        given = [p for p, a in arguments.items() if is_function(self.program.value(a))]
        for parameter in given:
            if parameter in scope.stored:
                reason = f"{scope.name} assigns to its parameter {parameter}, which is a function"
                raise self.refusal(reason, arguments[parameter])
        return given

    def known(self, argument: ast.expr) -> Any:
        """An argument's value, where it is a constant or a function; else UNKNOWN."""
        value = self.program.value(argument)
        return value if is_function(value) else constant(self.program.value, argument)

    def device_function(self, node: ast.expr) -> Any:
        """The plain device function that an expression calls; None where it calls none."""
        target = self.program.value(node.func) if isinstance(node, ast.Call) else UNKNOWN
        if not is_device_function(target):
            return None
        function = python_function(target)
        if function in self.callers and not (function is self.alone and function is self.callers[-1]):
            raise self.refusal(f"{function.__name__} calls itself", node)
        return function

    def bind(self, node: ast.Call, scope: Scope) -> dict[str, ast.expr]:
        """The argument of each parameter of a device function, in order."""
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise self.refusal(f"a call of {scope.name} with * or ** before an argument", node)
        given = dict(zip(scope.parameters, node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        defaults = scope.tree.args.defaults
        for name, value in zip(scope.parameters[len(scope.parameters) - len(defaults) :], defaults, strict=True):
            if name not in given:
                given[name] = Names(self.program, scope.around).expression(value)
        if set(given) != set(scope.parameters) or len(node.args) > len(scope.parameters):
            raise self.refusal(f"{scope.name} is called with the wrong arguments", node)
        return {p: given[p] for p in scope.parameters}

    def written_out(self, node: ast.expr, target: ast.expr | None) -> bool:
        """Write the body of a device function in place of its call, its names prefixed, and assign what it returns to ``target``;
        False where the expression is no call that is written out."""
        function = self.device_function(node)
        if function is None or not is_written_out(self.program, node, self.callers):  # type: ignore[arg-type]
            return False
        scope = scope_of(self.program, function, len(node.args))  # type: ignore[attr-defined]
        prefix = f"{scope.name}_{self.program.fresh('')[2:]}_"
        arguments = self.bind(self.call_of(node), scope)  # type: ignore[arg-type]
        self.given_functions(arguments, scope)
        for parameter, argument in arguments.items():
            known = self.known(argument)
            if parameter not in scope.stored and known is not UNKNOWN:
                scope.statics[parameter] = known
            elif parameter not in scope.stored and isinstance(argument, ast.Name):
                scope.aliases[parameter] = argument.id  # nothing in the callee can change the caller's variable
                if argument.id in self.dtypes:
                    scope.dtypes[parameter] = self.dtypes[argument.id]
            else:
                self.assign(prefix + parameter, argument)
        here, callers, self.callers = self.here, self.callers, (*self.callers, function)
        written = resolved(self.program, scope, scope.tree.body, prefix, self.callers)
        result: ast.expr = ast.Constant(None)
        if returns_early(written):
            result = load(self.program.fresh("result"))
            gives = any(isinstance(n, ast.Return) and n.value is not None for s in written for n in ast.walk(s))
            written = without_returns(written, result.id, self.program.fresh("left"))
            result = result if gives else ast.Constant(None)
            self.each(written)
        elif written and isinstance(written[-1], ast.Return):
            self.each(written[:-1])
            self.here = location_of(written[-1])
            result = ast.Constant(None) if written[-1].value is None else self.expression(written[-1].value)
        else:
            self.each(written)
        if target is not None:
            self.emit(ast.Assign([target], result))
        elif not is_simple(result):
            self.emit(ast.Expr(result))
        self.here, self.callers = here, callers
        return True

    def single_expression(self, scope: Scope, arguments: dict[str, ast.expr]) -> ast.expr | None:
        """The call of a function that is one return statement, written out; None where an argument would be evaluated
        more or less than once. Compiling such a function by itself costs more than its text."""
        *before, last = scope.tree.body
        is_docstring = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in before)
        if self.program.tracked or not is_docstring or not isinstance(last, ast.Return) or last.value is None:
            return None
        if any(isinstance(n, ast.Lambda | ast.NamedExpr) for n in ast.walk(last)):
            return None
        if any(python_function(scope.value(n)) is scope.function for n in ast.walk(last) if isinstance(n, ast.Name)):
            return None
        uses = [n.id for n in ast.walk(last.value) if isinstance(n, ast.Name)]
        may_skip = any(isinstance(n, ast.IfExp | ast.BoolOp) for n in ast.walk(last))
        for parameter, argument in arguments.items():
            known = self.known(argument)
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
    scope.prefix = prefix
    named = Names(program, scope, kernel=kernel).block(Fold(scope).statements(body))
    return Flatten(program, callers).block(named)
