"""Every name gets its final form: a constant, a captured value's name in the program, or a variable's own behind a prefix.

Statements and expressions that no later pass can handle are refused here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .. import half, vectors
from ..cuda_functions import substitute_of
from .program import UNKNOWN, Program
from .scope import Scope
from .source import is_device_function, python_function
from .spins import is_marked
from .statements import StatementPass, load, location_of
from .targets import ARRAYS, device_array, is_hashable, is_known, is_stub, is_unsupported_function

SUPPORTED = (ast.Break, ast.Continue, ast.If)
REFUSED = (
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await,
)  # fmt: skip


class Names(StatementPass):
    """State: the function's ``scope``; whether it is the ``kernel``."""

    def __init__(self, program: Program, scope: Scope, *, kernel: bool = False) -> None:
        super().__init__(program)
        self.scope, self.kernel = scope, kernel

    def statement(self, node: ast.stmt) -> None:
        if not hasattr(self, f"do_{type(node).__name__}") and not isinstance(node, SUPPORTED):
            raise self.refusal(f"{type(node).__name__} statements are not supported", node)
        super().statement(node)

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_FunctionDef(self, node: ast.FunctionDef) -> None:
        pass  # it is written out where it is called

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.emit(self.rebuilt(node))

    def do_Assert(self, node: ast.Assert) -> None:
        self.emit(ast.Assert(self.expression(node.test), node.msg))

    def do_Raise(self, node: ast.Raise) -> None:
        self.emit(ast.Raise(None if node.exc is None else self.expression(node.exc), None))

    def do_Return(self, node: ast.Return) -> None:
        is_nothing = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if self.kernel and not is_nothing:
            raise self.refusal("a kernel returns a value", node)
        self.emit(ast.Return(None if node.value is None or self.kernel else self.expression(node.value)))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.do_Assign(ast.Assign([node.target], node.value))

    def do_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id in self.scope.functions:
            return
        value = self.expression(node.value)
        if len(node.targets) > 1:
            value = self.assign(self.program.fresh(), value)
        for target in node.targets:
            self.emit(ast.Assign([self.target(target)], value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target: Any = self.target(node.target)
        self.emit(ast.AugAssign(target, node.op, self.expression(node.value)))

    def do_For(self, node: ast.For) -> None:
        iterator, target = self.expression(node.iter), self.target(node.target)
        self.emit(ast.For(target, iterator, self.block(node.body), self.block(node.orelse)))

    def do_While(self, node: ast.While) -> None:
        made = self.rebuilt(node)
        if not is_marked(node):
            look = ast.Expr(ast.Call(load("__tick"), [load("__env")], []))
            for part in ast.walk(look):
                part.at = location_of(node)  # type: ignore[attr-defined]
            made.body.insert(0, look)
        self.emit(made)

    def target(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name):
            return ast.Name(self.scope.prefix + node.id, ast.Store())
        if isinstance(node, ast.Tuple | ast.List):
            return ast.Tuple([self.target(e) for e in node.elts], ast.Store())
        if isinstance(node, ast.Subscript):
            return ast.Subscript(self.expression(node.value), self.expression(node.slice), ast.Store())
        if isinstance(node, ast.Attribute):  # a record's field
            return ast.Attribute(self.expression(node.value), node.attr, ast.Store())
        raise self.refusal(f"an assignment to a {type(node).__name__}", node)

    def expression(self, node: ast.expr) -> ast.expr:
        if isinstance(node, REFUSED):
            raise self.refusal(f"{type(node).__name__} is not supported in a kernel", node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Lambda):
            return self.outside(self.scope.value(node), "lambda", node)
        if isinstance(node, ast.NamedExpr):
            return ast.NamedExpr(self.target(node.target), self.expression(node.value))  # type: ignore[arg-type]
        if isinstance(node, ast.Attribute):
            value = UNKNOWN if is_known(self.scope.value(node.value)) else self.scope.value(node)
            return self.rebuilt(node) if value is UNKNOWN else self.outside(value, node.attr, node)
        if isinstance(node, ast.Call):
            return self.called(node)
        return self.rebuilt(node)

    def name(self, node: ast.Name) -> ast.expr:
        value = self.scope.value(node)
        return self.scope.variable(node.id) if value is UNKNOWN else self.outside(value, node.id, node)

    def called(self, node: ast.Call) -> ast.expr:
        target = self.scope.value(node.func)
        if is_unsupported_function(target):
            raise self.refusal(f"{ast.unparse(node.func)} is not supported by the emulator", node)
        made = self.rebuilt_arguments(node, self.argument if is_hashable(target) and target in ARRAYS else self.expression)
        if is_device_function(target):
            made.func = load(self.program.name_of(target, python_function(target).__name__))
        else:
            made.func = self.expression(node.func)
        made.text = ast.unparse(node.func)  # type: ignore[attr-defined]
        return made

    def argument(self, node: ast.expr) -> ast.expr:
        """An argument of a call for an array: where it is one, the constant that it stands for."""
        value = UNKNOWN if isinstance(node, ast.Constant) else self.scope.settled(node)
        if value is UNKNOWN:
            return self.expression(node)
        return ast.Constant(value) if isinstance(value, int | tuple | str) else load(self.program.name_of(value, "dtype"))  # type: ignore[arg-type]

    def rebuilt_arguments(self, node: ast.Call, argument: Callable[[ast.expr], ast.expr]) -> ast.Call:
        keywords = [ast.keyword(k.arg, argument(k.value)) for k in node.keywords]
        made = ast.Call(node.func, [argument(a) for a in node.args], keywords)
        made.at = node.at  # type: ignore[attr-defined]
        return made

    def outside(self, value: Any, hint: str, node: ast.expr) -> ast.expr:
        """A value from outside the function, as compiled code sees it."""
        if type(value) in (bool, int):
            return ast.Constant(value)
        array = device_array(value)
        if array is not None:
            return load(self.program.parameter_of(value, array))
        if half.is_half(value):
            half.enable()
        if is_hashable(value) and value in vectors.STUBS:
            vectors.enable()
        substitute = substitute_of(value)
        if substitute is not None:
            return load(self.program.name_of(substitute, hint))
        if is_stub(value) and not is_known(value):
            raise self.refusal(f"{ast.unparse(node)} is not supported by the emulator", node)
        return load(self.program.name_of(value, hint))
