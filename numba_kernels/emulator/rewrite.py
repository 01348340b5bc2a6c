"""From a kernel's source to the source that the emulator compiles: collectives become yields, CUDA's names become words of the
environment, device functions that contain collectives are inlined.

The rewritten function takes ``(__t, __env, *parameters)``: the thread's number in its block and the environment's address.
It keeps the line numbers of the original, so Numba's messages point into the kernel's own file. Imports neither the scheduler
nor NumPy arrays: what comes out is a :class:`Program`.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import itertools
import os
import textwrap
import types as python_types
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda
from numba import types as numba_types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.cuda.stubs import Stub
from numba.np.numpy_support import as_dtype

from . import disk_cache, machine, races
from .errors import UnsupportedKernel
from .locations import Location, number_of
from .machine import Env, njit
from .sites import Kind, Site

SHUFFLES = {getattr(cuda, name): name for name in machine.OFFER_SHUFFLE}
VOTES = {cuda.all_sync: Kind.ALL, cuda.any_sync: Kind.ANY, cuda.ballot_sync: Kind.BALLOT}
COUNTING_BARRIERS = {
    cuda.syncthreads_count: Kind.BARRIER_COUNT,
    cuda.syncthreads_and: Kind.BARRIER_AND,
    cuda.syncthreads_or: Kind.BARRIER_OR,
}
COLLECTIVES: dict[Any, str] = {
    getattr(cuda, name): f"cuda.{name}"
    for name in [
        "syncthreads",
        "syncthreads_count",
        "syncthreads_and",
        "syncthreads_or",
        "syncwarp",
        "shfl_sync",
        "shfl_xor_sync",
        "shfl_down_sync",
        "shfl_up_sync",
        "all_sync",
        "any_sync",
        "ballot_sync",
    ]
}
FENCES = (cuda.threadfence, cuda.threadfence_block, cuda.threadfence_system)
DIM3 = {
    cuda.blockIdx: (Env.BLOCK_X, Env.BLOCK_Y, Env.BLOCK_Z),
    cuda.blockDim: (Env.DIM_X, Env.DIM_Y, Env.DIM_Z),
    cuda.gridDim: (Env.GRID_X, Env.GRID_Y, Env.GRID_Z),
}
JIT_OPTIONS: dict[str, Any] = {
    "boundscheck": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
MACHINE = [
    "peek",
    "poke",
    "mark",
    "word32",
    "thread_x",
    "thread_y",
    "thread_z",
    "lane_of",
    "offer_vote",
    "offer_mask",
    "answer_like",
    "answer_flag",
    "answer_count",
    "finish",
    "passed",
    "shared_array",
    "local_array",
    "dynamic_array",
]
UNKNOWN = object()


@dataclass
class Program:
    """A kernel ready to compile.

    ``function``: ``(__t, __env, *parameters)``, a generator function when ``sites`` is not empty; ``source``: its text;
    ``sites``: from number 1; ``static_bytes``, ``local_bytes``: shared memory a block, local memory a thread;
    ``grain``: bytes of the smallest element in shared memory.
    """

    name: str
    file: str
    line: int
    full: bool
    tracked: bool  # the line that runs is recorded
    tag: str = ""
    sites: list[Site] = field(default_factory=list)
    static_bytes: int = 0
    local_bytes: int = 0
    grain: int = 16
    source: str = ""
    function: Any = None
    namespace: dict[str, Any] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    compiled: dict[Any, str] = field(default_factory=dict)
    shared_names: set[str] = field(default_factory=lambda: {"__shared_array", "__dynamic_array"})  # may hold shared arrays
    made: set[str] = field(default_factory=set)  # names of rewritten functions in the namespace
    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def error(self, reason: str, file: str, line: int) -> UnsupportedKernel:
        return UnsupportedKernel(reason, kernel=self.name, file=file, line=line)

    def name_of(self, value: Any, hint: str) -> str:
        """The name under which compiled code sees a captured value."""
        key = id(value)
        if key not in self.names:
            name = f"__{hint}_{next(self.counter)}"
            self.names[key] = name
            self.namespace[name] = value
            self.keep.append(value)  # an id is only unique while its object lives
        return self.names[key]


def python_function(function: Any) -> Any:
    """The plain function of a kernel: itself, or a dispatcher's ``py_func``."""
    return getattr(function, "py_func", function)


def is_device_function(value: Any) -> bool:
    """Functions whose source the emulator rewrites; ``@njit`` dispatchers and intrinsics work as they are."""
    if isinstance(value, python_types.FunctionType):
        return not value.__module__.startswith(("numba.", "numpy."))
    return hasattr(value, "py_func") and type(value).__module__.startswith(("numba.cuda", "numba_cuda"))


def tag_of(function: Any) -> str:
    """A name's end that no other function has. Compiled code is kept on disk under its symbols' names, and where two processes
    give one name to two functions (the activations of a family, say), a process that loads the one runs the other.
    """
    try:
        return disk_cache.digest(function)
    except disk_cache.NotDigestible:
        return uuid.uuid4().hex


def is_unchanged(code: python_types.CodeType) -> bool:
    """Whether a function's file still holds the text that the function was made from.

    What runs is rewritten from the text, so another text at the function's lines would be another function, and its
    compiled form would be kept under this one's name.
    """
    try:
        stamp = os.stat(code.co_filename).st_mtime_ns
    except OSError:  # not from a file: what inspect finds is what was typed
        return True
    here = _code_of_file(code.co_filename, stamp)
    return (code.co_name, code.co_firstlineno, code.co_code) in here


@functools.lru_cache(256)
def _code_of_file(file: str, stamp: int) -> frozenset[tuple[str, int, bytes]]:
    """Name, first line and bytecode of every function in a file."""
    found = set()
    try:
        waiting = [compile(Path(file).read_text(), file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError, OSError):  # in the middle of being written
        return frozenset()
    while waiting:
        code = waiting.pop()
        found.add((code.co_name, code.co_firstlineno, code.co_code))
        waiting += [constant for constant in code.co_consts if isinstance(constant, python_types.CodeType)]
    return frozenset(found)


class Scope:
    """The names of one function: which are local, and what the others stand for."""

    def __init__(self, program: Program, function: Any) -> None:
        self.function = python_function(function)
        self.name = self.function.__name__
        self.file = inspect.getsourcefile(self.function) or "?"
        try:
            lines, first = inspect.getsourcelines(self.function)
        except (OSError, TypeError) as error:
            raise program.error(f"the source of {self.name} cannot be read", self.file, 0) from error
        tree = ast.parse(textwrap.dedent("".join(lines)))
        ast.increment_lineno(tree, first - 1)
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise program.error(f"{self.name} is not written as a def", self.file, first)
        if not is_unchanged(self.function.__code__):
            raise program.error(f"the file of {self.name} has changed since it was imported", self.file, first)
        definition.decorator_list, definition.returns = [], None
        self.tree = definition
        arguments = definition.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise program.error(f"{self.name} takes *args, **kwargs or keyword-only parameters", self.file, first)
        self.parameters = [a.arg for a in arguments.posonlyargs + arguments.args]
        self.stored = {n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.locals = self.stored | set(self.parameters)
        self.statics: dict[str, Any] = {}  # parameters bound to a constant where the function was inlined
        closure = self.function.__closure__ or ()
        self.aliases: dict[str, str] = {}  # parameters that are another name of a caller's variable
        self.captured = {}
        for name, cell in zip(self.function.__code__.co_freevars, closure, strict=True):
            try:
                self.captured[name] = cell.cell_contents
            except ValueError:
                continue

    def value(self, node: ast.AST) -> Any:
        """What a name or dotted name stands for outside the function, or UNKNOWN."""
        if isinstance(node, ast.Name):
            if node.id in self.statics:
                return self.statics[node.id]
            if node.id in self.locals:
                return UNKNOWN
            if node.id in self.captured:
                return self.captured[node.id]
            if node.id in self.function.__globals__:
                return self.function.__globals__[node.id]
            return getattr(builtins, node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            base = self.value(node.value)
            if base is UNKNOWN or not isinstance(base, python_types.ModuleType | type):
                return UNKNOWN
            value = getattr(base, node.attr, UNKNOWN)
            return UNKNOWN if isinstance(value, property) else value
        return UNKNOWN

    def constant(self, node: ast.AST) -> Any:
        """The value of an expression of constants, or UNKNOWN."""
        folder = _Fold(self)
        try:
            made = ast.Expression(folder.visit(copy.deepcopy(node)))
            return eval(compile(ast.fix_missing_locations(made), self.file, "eval"), {"__builtins__": {}}, folder.values)
        except Exception:
            return UNKNOWN


class _Fold(ast.NodeTransformer):
    """Replaces each name of an expression by a variable that holds its constant; any other thing is an error."""

    ALLOWED = (
        ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.IfExp, ast.Subscript,
        ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
    )  # fmt: skip
    CONSTANTS = (int, float, complex, str, bytes, type(None), tuple, np.generic, np.dtype, numba_types.Type, type)

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.values: dict[str, Any] = {}

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name | ast.Attribute):
            value = self.scope.value(node)
            if value is UNKNOWN or not isinstance(value, self.CONSTANTS) or _is_stub(value):
                raise ValueError
        elif isinstance(node, ast.Call) and self.scope.value(node.func) in (int, max, min, abs, len, bool):
            value = self.scope.value(node.func)(*(self.scope.constant(a) for a in node.args))
        elif isinstance(node, self.ALLOWED):
            return self.generic_visit(node)
        else:
            raise ValueError
        name = f"v{len(self.values)}"
        self.values[name] = value
        return ast.Name(name, ast.Load())


def _is_stub(value: Any) -> bool:
    """``cuda.threadIdx`` and the like: classes that stand for what the compiler puts in their place."""
    return isinstance(value, type) and issubclass(value, Stub)


def contains_collective(program: Program, scope: Scope, tree: ast.AST, stack: tuple[Any, ...] = ()) -> bool:
    """Whether running ``tree`` may reach a barrier, a shuffle or a vote, also through device functions."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        target = scope.value(node.func)
        if target is UNKNOWN or not _hashable(target):
            continue
        if target in COLLECTIVES or _waits(target):
            return True
        if is_device_function(target):
            function = python_function(target)
            if function in stack:
                raise program.error(f"{function.__name__} calls itself", scope.file, node.lineno)
            inner = Scope(program, function)
            if contains_collective(program, inner, inner.tree, (*stack, function)):
                return True
    return False


def _waits(target: Any) -> Any:
    """What an intrinsic waits for, as its attribute ``waits_for`` says: until another intrinsic, called with the same arguments,
    is true; or "cluster", for all threads of the cluster."""
    return getattr(target, "waits_for", None) if isinstance(target, _Intrinsic) else None


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


class Rewriter:
    """Rewrites the statements of one function into ``self.out``, a list that nested bodies replace while they are written."""

    def __init__(self, program: Program, scope: Scope, prefix: str, *, kernel: bool, stack: tuple[Any, ...]) -> None:
        self.program, self.scope, self.prefix, self.kernel = program, scope, prefix, kernel
        self.stack = (*stack, scope.function)
        self.out: list[ast.stmt] = []
        self.line = scope.tree.lineno
        self.marked = 0
        self.substituted: dict[str, ast.expr] = {}  # parameters that stand for an expression, used once
        self.restores = False  # a function compiled by itself gives its caller's line back
        self._collective: dict[int, bool] = {}

    # --- small things ------------------------------------------------------------------------------------------------

    def error(self, reason: str, node: ast.AST | None = None) -> UnsupportedKernel:
        where = "" if self.scope.name == self.program.name else f" (in {self.scope.name})"
        return self.program.error(reason + where, self.scope.file, getattr(node, "lineno", self.line))

    def has_collective(self, node: ast.AST) -> bool:
        key = id(node)
        if key not in self._collective:
            self._collective[key] = contains_collective(self.program, self.scope, node, self.stack)
        return self._collective[key]

    def temporary(self, hint: str = "v") -> str:
        return f"__{hint}{next(self.program.counter)}"

    def place(self, node: ast.AST) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.stmt | ast.expr | ast.arg | ast.keyword):
                part.lineno = part.end_lineno = self.line  # type: ignore[attr-defined]
                part.col_offset = part.end_col_offset = 0  # type: ignore[attr-defined]

    def place_compound(self, made: ast.stmt, node: ast.stmt) -> None:
        """As :meth:`place`, for a statement whose body has its own lines: an inlined one may come from below its new parent."""
        made.lineno = made.end_lineno = node.lineno
        made.col_offset = made.end_col_offset = 0

    def mark(self) -> None:
        """Record the current line in the environment, unless it was the last one recorded."""
        if not self.program.tracked:
            return
        number = number_of(Location(self.scope.name, self.scope.file, self.line))
        if number != self.marked:
            self.raw(f"__poke(__env, {int(Env.LOCATION)}, {number})")
            self.marked = number

    def raw(self, text: str) -> None:
        for statement in ast.parse(text).body:
            self.place(statement)
            self.out.append(statement)

    def emit(self, statement: ast.stmt) -> None:
        """Append a simple statement, its line recorded first if it can fail."""
        if any(isinstance(n, ast.Subscript | ast.Call | ast.Raise | ast.Assert) for n in ast.walk(statement)):
            self.mark()
        if isinstance(statement, ast.Assign) and any(
            isinstance(n, ast.Name) and n.id in self.program.shared_names for n in ast.walk(statement.value)
        ):
            stored = [n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            self.program.shared_names.update(stored)
        self.place(statement)
        self.out.append(statement)

    def assign(self, name: str, value: ast.expr) -> None:
        self.emit(ast.Assign([ast.Name(name, ast.Store())], value))

    def block(self, statements: Sequence[ast.stmt], after: Callable[[], None] | None = None) -> list[ast.stmt]:
        """The rewritten form of a nested body."""
        outer, self.out = self.out, []
        self.marked = 0
        for statement in statements:
            self.statement(statement)
        if after is not None:
            after()
        inner, self.out = self.out, outer
        self.marked = 0
        if statements and not inner:
            inner = ast.parse("pass").body
            self.place(inner[0])
        return inner

    # --- statements --------------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        self.line = node.lineno
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            raise self.error(f"{type(node).__name__} statements are not supported", node)
        method(node)

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Break(self, node: ast.Break) -> None:
        self.emit(ast.Break())

    def do_Continue(self, node: ast.Continue) -> None:
        self.emit(ast.Continue())

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        value = self.expression(node.value)
        if not isinstance(value, ast.Name | ast.Constant):
            self.emit(ast.Expr(value))

    def do_Assert(self, node: ast.Assert) -> None:
        self.emit(ast.Assert(self.expression(node.test), node.msg))

    def do_Raise(self, node: ast.Raise) -> None:
        self.emit(ast.Raise(None if node.exc is None else self.expression(node.exc), None))

    def do_Return(self, node: ast.Return) -> None:
        if self.kernel and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise self.error("a kernel returns a value", node)
        value = None if node.value is None or self.kernel else self.expression(node.value)
        if self.restores:
            if value is not None and not isinstance(value, ast.Name | ast.Constant):
                self.assign(name := self.temporary("result"), value)
                value = _load(name)
            self.raw(f"__poke(__env, {int(Env.LOCATION)}, __caller)")
        self.emit(ast.Return(value))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.do_Assign(ast.Assign([node.target], node.value, lineno=node.lineno))

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        stores = any(isinstance(n, ast.Subscript) for t in node.targets for n in ast.walk(t))
        # A temporary, so that the value's reads come before the check of the store, or before a collective in the target.
        early = (self.program.full and stores) or any(self.has_collective(t) for t in node.targets)
        if len(node.targets) > 1 or (early and not isinstance(value, ast.Name | ast.Constant)):
            name = self.temporary()
            self.assign(name, value)
            value = _load(name)
        for target in node.targets:
            self.line = node.lineno
            self.emit(ast.Assign([self.target(target)], value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            stored = self.target(target)
            self.emit(ast.AugAssign(stored, node.op, self.expression(node.value)))  # type: ignore[arg-type]
            return
        if not isinstance(target, ast.Subscript):
            raise self.error("an augmented assignment to an attribute", node)
        if not self.program.full and not self.has_collective(node):
            self.emit(ast.AugAssign(self.target(target), node.op, self.expression(node.value)))  # type: ignore[arg-type]
            return
        array, index, old = self.temporary("array"), self.temporary("index"), self.temporary("old")
        self.assign(array, self.expression(target.value))
        self.assign(index, self.expression(target.slice))
        self.assign(old, self.read(_load(array), _load(index)))
        value = self.expression(node.value)
        self.write_check(_load(array), _load(index))
        element = ast.Subscript(_load(array), _load(index), ast.Store())
        self.emit(ast.Assign([element], ast.BinOp(_load(old), node.op, value)))

    def target(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name):
            return ast.Name(self.prefix + node.id, ast.Store())
        if isinstance(node, ast.Tuple | ast.List):
            return ast.Tuple([self.target(e) for e in node.elts], ast.Store())
        if isinstance(node, ast.Subscript):
            array, index = self.write_check(*self.sequence([node.value, node.slice]))
            return ast.Subscript(array, index, ast.Store())
        raise self.error(f"an assignment to a {type(node).__name__}", node)

    def do_If(self, node: ast.If) -> None:
        known = self.scope.constant(node.test)
        if known is not UNKNOWN:
            for statement in node.body if known else node.orelse:
                self.statement(statement)
            return
        test = self.condition(node.test)
        made = ast.If(test, self.block(node.body), self.block(node.orelse))
        self.line = node.lineno
        self.place(made.test)
        self.place_compound(made, node)
        self.out.append(made)

    def condition(self, node: ast.expr) -> ast.expr:
        test = self.expression(node)
        if any(isinstance(n, ast.Subscript | ast.Call) for n in ast.walk(test)):
            self.mark()
        return test

    def do_While(self, node: ast.While) -> None:
        if self.has_collective(node.test):
            raise self.error("a collective in a while condition: compute it before the loop and again in its body", node)
        test = self.expression(node.test)
        if self.program.tracked and any(
            isinstance(n, ast.Subscript | ast.Call) for n in ast.walk(test)
        ):  # the body leaves another line behind
            number = number_of(Location(self.scope.name, self.scope.file, node.lineno))
            test = ast.BoolOp(ast.And(), [_expression(f"__mark(__env, {number})"), test])
        made = ast.While(test, self.block(node.body), self.block(node.orelse))
        self.line = node.lineno
        self.place(made.test)
        self.place_compound(made, node)
        self.out.append(made)

    def do_For(self, node: ast.For) -> None:
        iterator = self.condition(node.iter)
        target = self.target(node.target)
        made = ast.For(target, iterator, self.block(node.body), self.block(node.orelse))
        self.line = node.lineno
        self.place(made.iter)
        self.place(made.target)
        self.place_compound(made, node)
        self.out.append(made)

    # --- expressions -------------------------------------------------------------------------------------------------

    def sequence(self, nodes: Sequence[ast.expr]) -> list[ast.expr]:
        """Rewrite expressions that are evaluated one after the other; what precedes a collective is kept in a variable."""
        last = max((k for k, n in enumerate(nodes) if self.has_collective(n)), default=-1)
        done = []
        for k, node in enumerate(nodes):
            value = self.expression(node)
            if k < last and not isinstance(value, ast.Constant | ast.Name):
                name = self.temporary()
                self.assign(name, value)
                value = _load(name)
            done.append(value)
        return done

    def expression(self, node: ast.expr) -> ast.expr:
        method = getattr(self, f"value_{type(node).__name__}", None)
        if method is not None:
            return method(node)
        if self.has_collective(node):
            raise self.error(f"a collective inside a {type(node).__name__}", node)
        made = copy.copy(node)
        for name, child in ast.iter_fields(node):
            if isinstance(child, ast.expr):
                setattr(made, name, self.expression(child))
            elif isinstance(child, list):
                setattr(made, name, [self.expression(c) if isinstance(c, ast.expr) else c for c in child])
        return made

    def value_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def _refused(self, node: ast.expr) -> ast.expr:
        raise self.error(f"{type(node).__name__} is not supported in a kernel", node)

    value_ListComp = value_SetComp = value_DictComp = value_GeneratorExp = value_Lambda = value_NamedExpr = _refused
    value_Yield = value_YieldFrom = value_Await = _refused

    def captured(self, value: Any, hint: str, node: ast.AST) -> ast.expr:
        """A value from outside the function, as compiled code sees it."""
        if isinstance(value, bool | int) and type(value) in (bool, int):
            return ast.Constant(value)
        if isinstance(value, numba_types.Type) and not isinstance(value, numba_types.abstract.Hashable):
            return _load(self.program.name_of(value, hint))
        if is_device_function(value):
            raise self.error(f"device function {python_function(value).__name__} used as a value", node)
        return _load(self.program.name_of(value, hint))

    def value_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.substituted:
            return self.substituted[node.id]
        value = self.scope.value(node)
        if value is UNKNOWN:
            return _load(self.scope.aliases.get(node.id, self.prefix + node.id))
        return self.captured(value, node.id, node)

    def value_Attribute(self, node: ast.Attribute) -> ast.expr:
        base = self.scope.value(node.value)
        if base is cuda.threadIdx and node.attr in ("x", "y", "z"):
            return _expression(f"__thread_{node.attr}(__env, __t)")
        if _hashable(base) and base in DIM3 and node.attr in ("x", "y", "z"):
            return _expression(f"__word32(__env, {int(DIM3[base]['xyz'.index(node.attr)])})")
        value = self.scope.value(node)
        if value is cuda.laneid:
            return _expression("__lane_of(__t)")
        if value is cuda.warpsize:
            return ast.Constant(32)
        if value is UNKNOWN:
            return ast.Attribute(self.expression(node.value), node.attr, ast.Load())
        if _is_stub(value):
            raise self.error(f"{ast.unparse(node)} is not supported by the emulator", node)
        return self.captured(value, node.attr, node)

    def value_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return ast.UnaryOp(node.op, self.expression(node.operand))

    def value_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.sequence([node.left, node.right])
        return ast.BinOp(left, node.op, right)

    def value_Compare(self, node: ast.Compare) -> ast.expr:
        parts = [node.left, *node.comparators]
        if len(parts) > 2 and any(self.has_collective(p) for p in parts[2:]):
            raise self.error("a collective in the tail of a chained comparison, which may not be evaluated", node)
        first, *others = self.sequence(parts)
        return ast.Compare(first, node.ops, others)

    def value_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        if any(self.has_collective(v) for v in node.values[1:]):
            raise self.error("a collective in an `and` / `or` operand that may not be evaluated", node)
        decides = isinstance(node.op, ast.Or)  # the value that settles the operation
        values = []
        for operand in node.values:
            known = self.scope.constant(operand)
            if known is UNKNOWN:
                values.append(self.expression(operand))
            elif bool(known) is decides:
                values.append(ast.Constant(known))
                break
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values or [ast.Constant(not decides)])

    def value_IfExp(self, node: ast.IfExp) -> ast.expr:
        known = self.scope.constant(node.test)
        if known is not UNKNOWN:
            return self.expression(node.body if known else node.orelse)
        if self.has_collective(node.body) or self.has_collective(node.orelse):
            raise self.error("a collective in a branch of a conditional expression", node)
        return ast.IfExp(self.expression(node.test), self.expression(node.body), self.expression(node.orelse))

    def value_Tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.Tuple(self.sequence(node.elts), ast.Load())

    def value_Subscript(self, node: ast.Subscript) -> ast.expr:
        array, index = self.sequence([node.value, node.slice])
        return self.read(array, index)

    def read(self, array: ast.expr, index: ast.expr) -> ast.expr:
        is_shape = isinstance(array, ast.Attribute) and array.attr in ("shape", "strides")
        if not self.program.full or is_shape or isinstance(index, ast.Slice):
            return ast.Subscript(array, index, ast.Load())
        return ast.Call(_load("__read"), [_load("__env"), array, index], [])

    def write_check(self, array: ast.expr, index: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Check a store before it is done; the array and index to do it with, each evaluated once."""
        if not self.program.full or isinstance(index, ast.Slice):
            return array, index
        kept = []
        for value in (array, index):
            if not isinstance(value, ast.Name | ast.Constant):
                self.assign(name := self.temporary(), value)
                value = _load(name)
            kept.append(value)
        self.emit(ast.Expr(ast.Call(_load("__write"), [_load("__env"), *kept], [])))
        return kept[0], kept[1]

    # --- calls -------------------------------------------------------------------------------------------------------

    def value_Call(self, node: ast.Call) -> ast.expr:
        target = self.scope.value(node.func)
        if target is not UNKNOWN and _hashable(target):
            if target in COLLECTIVES:
                return self.collective(node, target)
            if _waits(target):
                return self.wait(node, _waits(target))
            if target in FENCES:
                return ast.Constant(None)
            if target is cuda.shared.array or target is cuda.local.array:
                return self.memory(node, shared=target is cuda.shared.array)
            if target is cuda.grid or target is cuda.gridsize:
                return self.grid(node, target)
            if is_device_function(target):
                return self.device_call(node, target)
            if getattr(target, "__module__", "").startswith("numba.cuda") and not _works_on_cpu(target):
                raise self.error(f"{ast.unparse(node.func)} is not supported by the emulator", node)
        keywords = [k.value for k in node.keywords]
        function = self.expression(node.func)
        values = self.sequence([*node.args, *keywords])
        self.describe_access(target, values[: len(node.args)])
        named = [ast.keyword(k.arg, v) for k, v in zip(node.keywords, values[len(node.args) :], strict=True)]
        return ast.Call(function, values[: len(node.args)], named)

    def describe_access(self, target: Any, values: list[ast.expr]) -> None:
        """In the full check: what an intrinsic does to the array that is its first argument.

        An intrinsic says so in its attribute ``memory_access``: ("read" or "write", number of elements), the first element
        being ``array[second argument]``. Shared memory given to any other intrinsic is no longer followed.
        """
        if not self.program.full or not isinstance(target, _Intrinsic | Dispatcher):
            return
        for k, value in enumerate(values):
            if not isinstance(value, ast.Name | ast.Constant):
                self.assign(name := self.temporary(), value)
                values[k] = _load(name)
        described = getattr(target, "memory_access", None)
        if described is not None:
            kind, count = described
            arguments = [_load("__env"), values[0], values[1], ast.Constant(int(count)), ast.Constant(kind == "write")]
            self.emit(ast.Expr(ast.Call(_load("__span"), arguments, [])))
        else:
            for value in values:
                if isinstance(value, ast.Name) and value.id in self.program.shared_names:
                    self.emit(ast.Expr(ast.Call(_load("__escape"), [_load("__env"), value], [])))

    def grid(self, node: ast.Call, target: Any) -> ast.expr:
        count = self.scope.constant(node.args[0])
        if count not in (1, 2, 3):
            raise self.error("cuda.grid and cuda.gridsize take 1, 2 or 3", node)
        parts = []
        for axis in range(count):
            dim = f"__peek(__env, {Env.DIM_X + axis})"
            thread = f"__thread_{'xyz'[axis]}(__env, __t)"
            text = f"__peek(__env, {Env.BLOCK_X + axis}) * {dim} + {thread}"
            parts.append(text if target is cuda.grid else f"__peek(__env, {Env.GRID_X + axis}) * {dim}")
        return _expression(parts[0] if count == 1 else "(" + ", ".join(parts) + ")")

    def memory(self, node: ast.Call, *, shared: bool) -> ast.expr:
        """``cuda.shared.array`` or ``cuda.local.array``: an array at a fixed place of the block's or the thread's memory."""
        given = dict(zip(("shape", "dtype", "alignment"), node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        shape: Any = self.scope.constant(given["shape"]) if "shape" in given else UNKNOWN
        dtype: Any = self.scope.value(given["dtype"]) if "dtype" in given else UNKNOWN
        kind = "shared" if shared else "local"
        if shape is UNKNOWN:
            raise self.error(f"the shape of a cuda.{kind}.array is not a constant", node)
        if isinstance(dtype, numba_types.Type):
            element = as_dtype(dtype)
        elif dtype is UNKNOWN:
            raise self.error(f"the dtype of a cuda.{kind}.array is not a constant", node)
        else:
            element = np.dtype(dtype)
        extents = tuple(int(e) for e in shape) if isinstance(shape, tuple) else (int(shape),)
        size = int(np.prod(extents)) * element.itemsize
        name = self.program.name_of(element, "dtype")
        program = self.program
        text = str(extents[0]) if len(extents) == 1 else str(extents)
        if not shared:
            offset = -(-program.local_bytes // 16) * 16
            program.local_bytes = offset + size
            return _expression(f"__local_array(__env, __t, {offset}, {text}, {name})")
        program.grain = min(program.grain, element.itemsize)
        if extents == (0,):
            return _expression(f"__dynamic_array(__env, {name})")
        offset = -(-program.static_bytes // 16) * 16
        program.static_bytes = offset + size
        return _expression(f"__shared_array(__env, {offset}, {text}, {name})")

    def collective(self, node: ast.Call, target: Any) -> ast.expr:
        """Publish what the lane brings, wait, and read the answer."""
        name = COLLECTIVES[target]
        if node.keywords:
            raise self.error(f"{name} with keyword arguments", node)
        wanted = {cuda.syncthreads: (0, 0), cuda.syncwarp: (0, 1)}.get(
            target, (3, 3) if target in SHUFFLES else (1, 1) if target in COUNTING_BARRIERS else (2, 2)
        )
        if not wanted[0] <= len(node.args) <= wanted[1]:
            raise self.error(f"{name} takes {wanted[1]} arguments", node)
        if not self.kernel_has_yields:
            raise self.error(f"{name} in a function that was not inlined", node)
        arguments = self.sequence(node.args)
        kind = (
            Kind.SHUFFLE if target in SHUFFLES
            else VOTES.get(target) or COUNTING_BARRIERS.get(target)
            or (Kind.BARRIER if target is cuda.syncthreads else Kind.SYNCWARP)
        )  # fmt: skip
        program = self.program
        program.sites.append(Site(kind, name, Location(self.scope.name, self.scope.file, node.lineno)))
        if kind is Kind.SHUFFLE:
            mask, value, argument = arguments
            if not isinstance(value, ast.Name):
                self.assign(kept := self.temporary(), value)
                value = _load(kept)
            self.call(f"__offer_{SHUFFLES[target]}", mask, value, argument)
        elif kind in VOTES.values():
            self.call("__offer_vote", *arguments)
        elif kind is Kind.SYNCWARP:
            self.call("__offer_mask", *(arguments or [ast.Constant(0xFFFFFFFF)]))
        elif kind is not Kind.BARRIER:
            self.call("__offer_vote", ast.Constant(0), *arguments)
        self.raw(f"yield {len(program.sites)}")
        self.marked = 0
        if kind in (Kind.BARRIER, Kind.SYNCWARP):
            return ast.Constant(None)
        result = self.temporary()
        if kind is Kind.SHUFFLE:
            self.raw(f"{result} = __answer_like(__env, __t, {ast.unparse(value)})")
        elif kind in (Kind.ALL, Kind.ANY):
            self.raw(f"{result} = __answer_flag(__env, __t)")
        else:
            self.raw(f"{result} = __answer_count(__env, __t)")
        return _load(result)

    def wait(self, node: ast.Call, what: Any) -> ast.expr:
        """A yield that ends when all threads of the cluster are there, or yields for as long as a condition is not true."""
        name = ast.unparse(node.func)
        if not self.kernel_has_yields:
            raise self.error(f"{name} in a function that was not inlined", node)
        program = self.program
        kind = Kind.CLUSTER if what == "cluster" else Kind.POLL
        kept = []
        for value in self.sequence(node.args):
            self.assign(argument := self.temporary(), value)
            kept.append(argument)
        program.sites.append(Site(kind, name, Location(self.scope.name, self.scope.file, node.lineno)))
        waiting = f"yield {len(program.sites)}"
        if kind is Kind.CLUSTER:
            self.raw(waiting)
        else:
            self.raw(f"while not {program.name_of(what, 'condition')}({', '.join(kept)}):\n    {waiting}")
            self.raw("__passed(__env)")
        self.marked = 0
        return ast.Constant(None)

    def call(self, function: str, *arguments: ast.expr) -> None:
        """Emit a call of one of the machine's operations on this thread."""
        self.emit(ast.Expr(ast.Call(_load(function), [_load("__env"), _load("__t"), *arguments], [])))

    @property
    def kernel_has_yields(self) -> bool:
        return self.kernel or bool(self.prefix)

    def device_call(self, node: ast.Call, target: Any) -> ast.expr:
        function = python_function(target)
        if function in self.stack:
            raise self.error(f"{function.__name__} calls itself", node)
        scope = Scope(self.program, function)
        arguments = self.bind(node, scope)
        if contains_collective(self.program, scope, scope.tree, self.stack):
            return self.inline(node, scope, arguments)
        written_out = self.as_expression(scope, arguments)
        if written_out is not None:
            return written_out
        compiled = self.compiled(scope)
        values = self.sequence([a for a in arguments])
        return ast.Call(_load(compiled), [_load("__t"), _load("__env"), *values], [])

    def bind(self, node: ast.Call, scope: Scope) -> list[ast.expr]:
        """The argument of each parameter of a device function, in order."""
        given = dict(zip(scope.parameters, node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        defaults = scope.tree.args.defaults
        for name, value in zip(scope.parameters[len(scope.parameters) - len(defaults) :], defaults, strict=True):
            given.setdefault(name, value)
        if set(given) != set(scope.parameters) or len(node.args) > len(scope.parameters):
            raise self.error(f"{scope.name} is called with the wrong arguments", node)
        return [given[p] for p in scope.parameters]

    def inline(self, node: ast.Call, scope: Scope, arguments: Sequence[ast.expr]) -> ast.expr:
        """Write a device function's body here, its names prefixed, and give its return value."""
        body = list(scope.tree.body)
        returns = [n for n in ast.walk(scope.tree) if isinstance(n, ast.Return)]
        trailing = body[-1] if isinstance(body[-1], ast.Return) else None
        for found in returns:
            if found is not trailing:
                raise self.program.error(
                    f"{scope.name} contains a collective and returns before its end: one return, last, is supported",
                    scope.file,
                    found.lineno,
                )
        prefix = f"{scope.name}_{next(self.program.counter)}_"
        values = self.sequence(arguments)
        for parameter, argument, value in zip(scope.parameters, arguments, values, strict=True):
            known = self.scope.constant(argument)
            if parameter not in scope.stored and known is not UNKNOWN:
                scope.statics[parameter] = known
            elif parameter not in scope.stored and isinstance(value, ast.Name):
                scope.aliases[parameter] = value.id  # nothing in the callee can change the caller's variable
            else:
                self.assign(prefix + parameter, value)
        inner = Rewriter(self.program, scope, prefix, kernel=False, stack=self.stack)
        inner.out = self.out
        for statement in body if trailing is None else body[:-1]:
            inner.statement(statement)
        result: ast.expr = ast.Constant(None)
        if trailing is not None and trailing.value is not None:
            inner.line = trailing.lineno
            result = inner.expression(trailing.value)
            if not isinstance(result, ast.Name | ast.Constant):
                inner.assign(name := self.temporary(f"{scope.name}_"), result)
                result = _load(name)
        self.marked = 0
        return result

    def as_expression(self, scope: Scope, arguments: Sequence[ast.expr]) -> ast.expr | None:
        """The call of a function that is one return statement, written out; None where an argument would be evaluated
        more or less than once. Compiling such a function by itself costs more than its text."""
        *before, last = scope.tree.body
        is_docstring = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in before)
        if self.program.tracked or not is_docstring or not isinstance(last, ast.Return) or last.value is None:
            return None
        uses = [n.id for n in ast.walk(last.value) if isinstance(n, ast.Name)]
        values: dict[str, ast.expr] = {}
        for parameter, argument in zip(scope.parameters, arguments, strict=True):
            known = self.scope.constant(argument)
            value = self.expression(argument)
            if known is not UNKNOWN:
                scope.statics[parameter] = known
            elif isinstance(value, ast.Name):
                scope.aliases[parameter] = value.id
            elif uses.count(parameter) == 1 and not any(isinstance(n, ast.IfExp | ast.BoolOp) for n in ast.walk(last)):
                values[parameter] = value
            else:
                return None
        inner = Rewriter(self.program, scope, "", kernel=False, stack=self.stack)
        inner.substituted = values
        return inner.expression(last.value)

    def compiled(self, scope: Scope) -> str:
        """The name of a device function without collectives, compiled by itself."""
        program = self.program
        if scope.function not in program.compiled:
            inner = Rewriter(program, scope, "", kernel=False, stack=self.stack)
            made = inner.whole(f"{scope.name}_{program.tag}_{next(program.counter)}")
            program.compiled[scope.function] = made
            program.namespace[made] = njit(**JIT_OPTIONS)(program.namespace[made])
        return program.compiled[scope.function]

    # --- whole functions ---------------------------------------------------------------------------------------------

    def whole(self, name: str) -> str:
        """Rewrite the function under the name ``name`` and put it, not compiled, in the program's namespace."""
        scope, program = self.scope, self.program
        self.restores = (
            program.tracked and not self.kernel and any(isinstance(n, ast.Subscript | ast.Call) for n in ast.walk(scope.tree))
        )
        if not self.kernel:
            program.shared_names.update(scope.parameters)
        body = self.block(scope.tree.body)
        if self.restores:
            head, self.out = body, []
            self.line = scope.tree.lineno
            self.raw(f"__caller = __peek(__env, {int(Env.LOCATION)})")
            body = self.out + head
            if not isinstance(head[-1], ast.Return):
                self.out = body
                self.raw(f"__poke(__env, {int(Env.LOCATION)}, __caller)")
        if self.kernel:
            self.line = scope.tree.body[-1].end_lineno or scope.tree.lineno
            self.out = body
            self.raw("__finish(__env, __t)")
        names = ["__t", "__env", *(self.prefix + p for p in scope.parameters)]
        definition = copy.copy(scope.tree)
        definition.name, definition.decorator_list, definition.returns, definition.body = name, [], None, body
        definition.args = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
        module = ast.Module([definition], [])
        ast.fix_missing_locations(module)
        program.source += ast.unparse(module) + "\n\n\n"
        exec(compile(module, scope.file, "exec"), program.namespace)
        program.made.add(name)
        return name


def _works_on_cpu(target: Any) -> bool:
    return isinstance(target, numba_types.Type | type)


def rewrite(function: Any, *, full: bool = False, tracked: bool = False) -> Program:
    """Rewrite a kernel: a plain function or a ``cuda.jit`` dispatcher. Nothing is compiled yet.

    ``tracked``: the line that runs is recorded in the environment; ``full``: reads and writes of arrays also go through the
    checks of races.py. Raises :class:`UnsupportedKernel`.
    """
    plain = python_function(function)
    code = getattr(plain, "__code__", None)
    if code is None:
        raise TypeError(f"a kernel is a Python function, not {type(function).__name__}")
    program = Program(plain.__name__, code.co_filename, code.co_firstlineno, full, tracked or full)
    program.namespace.update(
        {f"__{name}": getattr(machine, name) for name in MACHINE},
        **{f"__{name}": getattr(races, name) for name in ("read", "write", "span", "escape")},
        **{f"__offer_{name}": offer for name, offer in machine.OFFER_SHUFFLE.items()},
        __name__=__name__,
    )
    scope = Scope(program, plain)
    program.name, program.file = scope.name, scope.file
    rewriter = Rewriter(program, scope, "", kernel=True, stack=())
    program.tag = tag_of(plain)
    made = rewriter.whole(f"{scope.name}_{program.tag}")
    program.function = program.namespace[made]
    return program
