"""What may stand in an expression's place: one small change each, with the kind of fault that it is. Syntax trees alone."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

Change = tuple[str, ast.expr]  # the kind, and what stands in the expression's place

_OTHER_OPERATION: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_OTHER_BOUNDS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
# Names that a hand may write for each other, where both are at hand.
_MISTAKEN = (
    ("x", "residual"),
    ("x_row", "residual_row"),
    ("x_row", "out_row"),
    ("x_mine", "residual_mine"),
    ("x_mine", "out_mine"),
    ("x_stride", "residual_stride"),
    ("x_stride", "out_stride"),
    ("rows", "width"),
    ("lane", "warp"),
    ("lane", "thread"),
    ("gate", "up"),
    ("gates", "ups"),
    ("first", "second"),
    ("alpha", "limit"),
    ("eps", "bias"),
    ("eps_bits", "bias_bits"),
    ("share_bits", "eps_bits"),
    ("partial", "values"),
    ("offset", "jump"),
    ("ROUNDS", "INTERLEAVED"),
    ("THREADS", "WARPS"),
    ("R1", "W1"),
    ("VECTOR", "VECTORS"),
    ("HELD", "EARLY"),
)
_OTHER_TYPE = {"float32": "float64", "int64": "int32", "int32": "int64"}
_OTHER_SHUFFLE = ("shfl_down_sync", "shfl_up_sync")
_HALF_A_WARP = 0x0000FFFF


def changes(node: ast.expr) -> Iterator[Change]:
    """Every change of this expression itself, none of the expressions in it. The node stays as it is."""
    match node:
        case ast.BinOp():
            yield from _operation(node)
        case ast.Constant(value=bool()):
            yield "condition", ast.Constant(not node.value)
        case ast.Constant(value=int() | float() as number):
            for value in _numbers(number):
                yield "constant", ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))
        case ast.Compare(ops=[operation]):
            for other in _OTHER_BOUNDS.get(type(operation), ()):
                yield "bound", ast.Compare(node.left, [other()], node.comparators)
        case ast.BoolOp():
            yield "condition", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            for each in node.values:
                rest = [other for other in node.values if other is not each]
                yield "condition", ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
        case ast.IfExp():
            yield "branch", ast.IfExp(node.test, node.orelse, node.body)
            yield "branch", node.body
            yield "branch", node.orelse
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield ("condition" if isinstance(node.op, ast.Not) else "arithmetic"), node.operand
        case ast.Subscript(value=ast.Name(id=table), slice=ast.expr() as index) if not table.isupper():
            for step in (ast.Add(), ast.Sub()):
                yield "bound", ast.Subscript(node.value, ast.BinOp(index, step, ast.Constant(1)), node.ctx)
        case ast.Attribute(attr="x"):
            yield "name", ast.Attribute(node.value, "y", node.ctx)
        case ast.Attribute(attr="threadIdx" | "blockIdx"):
            yield "name", ast.Attribute(node.value, "blockIdx" if node.attr == "threadIdx" else "threadIdx", node.ctx)
        case ast.Call():
            yield from _call(node)


def mistaken(name: ast.Name, known: frozenset[str]) -> Iterator[Change]:
    """Another name that is known there in a name's place."""
    for pair in _MISTAKEN:
        if name.id in pair:
            other = pair[1 - pair.index(name.id)]
            if other in known:
                yield "name", ast.Name(other, name.ctx)


def _operation(node: ast.BinOp) -> Iterator[Change]:
    other = _OTHER_OPERATION.get(type(node.op))
    if other:
        yield "arithmetic", ast.BinOp(node.left, other(), node.right)
    yield "operand", node.left
    yield "operand", node.right


def _numbers(value: float) -> list[float]:
    """Off by one, doubled, of the other sign; a number with a fraction also a thousandth larger."""
    if isinstance(value, int):
        near: list[float] = [value + 1, value - 1, 2 * value, -value]
    else:
        near = [2.0 * value, -value, 1.0 if value == 0.0 else 0.0]
        if value != math.floor(value):
            near.append(value * (1.0 + 2.0**-10))
    return [other for k, other in enumerate(near) if other != value and other not in near[:k]]


def _call(node: ast.Call) -> Iterator[Change]:
    function, arguments = called(node), node.args
    if function.startswith("make_"):
        return
    if function == "shfl_xor_sync":
        assert isinstance(node.func, ast.Attribute)
        mask, value, distance = arguments
        for other in _OTHER_SHUFFLE:
            yield "shuffle", ast.Call(ast.Attribute(node.func.value, other, ast.Load()), arguments, [])
        yield "shuffle", value
        yield "mask", ast.Call(node.func, [ast.Constant(_HALF_A_WARP), value, distance], [])
        yield "shuffle", ast.Call(node.func, [mask, value, ast.BinOp(distance, ast.Add(), ast.Constant(1))], [])
        return
    if function == "range":
        for k, each in enumerate(arguments):
            for operation in (ast.Add(), ast.Sub()):
                moved = ast.BinOp(each, operation, ast.Constant(1))
                yield "bound", ast.Call(node.func, [*arguments[:k], moved, *arguments[k + 1 :]], [])
        return
    if function in _OTHER_TYPE and isinstance(node.func, ast.Name):
        yield "dtype", ast.Call(ast.Name(_OTHER_TYPE[function], ast.Load()), arguments, [])
    for k in range(function in _BUFFER_FIRST, len(arguments) - 1):
        swapped = [*arguments[:k], arguments[k + 1], arguments[k], *arguments[k + 2 :]]
        yield "argument", ast.Call(node.func, swapped, node.keywords)
    if arguments and function not in _GIVES_ANOTHER_TYPE:
        kind = "rounding" if function in ROUNDS else "operand"
        yield kind, arguments[0]
        if len(arguments) > 1:
            yield kind, arguments[-1]


_BUFFER_FIRST = frozenset({"read", "read_weight", "write", "load", "store", "put", "get"})  # whose place is a type's
ROUNDS = frozenset({"rounded", "narrow", "widen", "rounded_sum", "rounded_product"})
# What none of its arguments can stand for: it would not compile.
_GIVES_ANOTHER_TYPE = frozenset(
    {"array", "read", "read_weight", "load", "load_part", "load_pair", "load_weight", "load_vector", "kept_weight"}
    | {"get", "get_words", "get_part", "replace", "Activation"}
)


def called(node: ast.Call) -> str:
    """The last word of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
