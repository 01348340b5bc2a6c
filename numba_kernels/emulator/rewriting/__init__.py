"""From a kernel's source to the source that the emulator compiles, pass by pass.

====================  =================================================================================================
source, scope         the definition, and what its names stand for
fold                  branches that never run are left out
names                 every name gets its final form; forms that no pass knows are refused
flatten               a barrier, shuffle, vote or condition becomes a statement of its own
inline                calls of device functions are written out, or their functions compiled by themselves
checks                in the full check: indices are checked
yields                waits become yields
lower                 CUDA's indices and memories become words and places of the environment
track                 where wanted: the line that runs is recorded
====================  =================================================================================================

What comes out takes ``(__t, __env, *parameters)``: the thread's number in its block, the environment's address, and what
``Program`` says. It keeps the line numbers of the original, so Numba's messages point into the kernel's own file.
"""

from __future__ import annotations

import ast
import copy
import inspect
import uuid
from typing import Any

from .. import disk_cache, instructions
from ..library import CheckedCompiler, EmulatedCompiler
from ..words import njit
from .checks import Checks
from .inline import ITSELF, Inline, resolved
from .lower import Lower
from .program import Location, Program, Site
from .scope import Scope
from .shared import is_shared, shared
from .source import is_device_function, python_function
from .statements import location_of
from .track import Track
from .yields import Yields

__all__ = ["Location", "Program", "Site", "is_device_function", "is_shared", "jit_options", "python_function", "rewrite"]

JIT_OPTIONS: dict[str, Any] = {
    "boundscheck": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def jit_options(full: bool, nrt: bool) -> dict[str, Any]:
    """How a kernel is compiled; ``nrt``: with counting of references, though the launch owns every array."""
    return {**JIT_OPTIONS, "pipeline_class": CheckedCompiler if full else EmulatedCompiler, "_nrt": nrt}


def rewrite(
    function: Any, options: dict[str, Any], dtypes: dict[str, Any], *, full: bool = False, tracked: bool = False
) -> Program:
    """Rewrite a kernel: a plain function or a ``cuda.jit`` dispatcher. Nothing is compiled yet; device functions that will be
    compiled by themselves have the ``options``. ``dtypes``: of its parameters that are arrays.

    ``tracked``: the line that runs is recorded in the environment; ``full``: all accesses to memory also go into the account of
    races.py. Raises :class:`UnsupportedKernel`.
    """
    plain = python_function(function)
    code = getattr(plain, "__code__", None)
    if code is None:
        raise TypeError(f"a kernel is a Python function, not {type(function).__name__}")
    program = Program(plain.__name__, code.co_filename, code.co_firstlineno, full, tracked or full, tag_of(plain))
    program.namespace.update(instructions.BY_NAME, __name__=__name__)
    program.options = options
    if code.co_flags & inspect.CO_VARARGS:
        raise program.refusal(f"the kernel {plain.__name__} takes *args", Location(program.name, program.file, program.line))
    scope = Scope(program, plain)
    program.file = scope.file
    scope.dtypes = {name: dtype for name, dtype in dtypes.items() if name not in scope.stored}
    made = define(program, scope, f"{scope.name}_{program.tag}", (), kernel=True)
    program.function = program.namespace[made]
    return program


def tag_of(function: Any) -> str:
    """A name's end that no other function has. Compiled code is kept on disk under its symbols' names, and where two processes
    give one name to two functions (the activations of a family, say), a process that loads the one runs the other.
    """
    try:
        return disk_cache.digest(function)
    except disk_cache.NotDigestible:
        return uuid.uuid4().hex


def define(program: Program, scope: Scope, name: str, callers: tuple[Any, ...], *, kernel: bool = False) -> str:
    """Rewrite a function under the name ``name`` and put it, not compiled, in the program's namespace."""
    definition = rewritten(program, scope, name, callers, kernel=kernel)
    program.source += ast.unparse(definition) + "\n\n\n"
    exec(compile(ast.Module([definition], []), scope.file, "exec"), program.namespace)
    return name


def define_alone(program: Program, scope: Scope, callers: tuple[Any, ...]) -> str:
    """Rewrite a device function and put it, to be compiled by itself, in the program's namespace; its name there."""
    definition = rewritten(program, scope, scope.name, callers)
    made = None
    recursive = any(isinstance(n, ast.Name) and n.id == ITSELF for n in ast.walk(definition))
    if not program.tracked and not recursive:  # tracked: it numbers the lines of the whole program
        made = shared(definition, scope.file, program.namespace, program.options)
    if made is None:
        made = definition.name = f"{scope.name}_{program.tag}_{program.fresh('')[2:]}"
        names = dict(program.namespace) if recursive else program.namespace
        exec(compile(ast.Module([definition], []), scope.file, "exec"), names)
        program.namespace[made] = names[ITSELF if recursive else made] = njit(**program.options)(names[made])
    program.source += ast.unparse(definition) + "\n\n\n"
    return made


def rewritten(program: Program, scope: Scope, name: str, callers: tuple[Any, ...], *, kernel: bool = False) -> ast.FunctionDef:
    """The definition of a function, under the name ``name``, after all passes."""
    callers = (*callers, scope.function)
    body = resolved(program, scope, scope.tree.body, "", callers, kernel=kernel)

    def compile_alone(inner: Scope, around: tuple[Any, ...]) -> str:
        key = (
            inner.function,
            len(inner.parameters),
            tuple(sorted((name, id(value)) for name, value in inner.statics.items())),
        )
        if key not in program.alone:
            program.alone[key] = define_alone(program, inner, around)
        return program.alone[key]

    body = Inline(program, callers, scope.dtypes, None if kernel else scope.function, compile_alone).block(body)
    if program.full:
        body = Checks(program).block(body)
    body = Lower(program).block(Yields(program).block(body))
    if program.tracked:
        restores = not kernel and any(isinstance(n, ast.Subscript | ast.Call) for n in ast.walk(scope.tree))
        body = Track(program, restores=restores).function(body, location_of(scope.tree))
    if kernel:
        end = ast.parse("__finish(__env, __t)").body[0]
        end.at = Location(scope.name, scope.file, scope.tree.body[-1].end_lineno or scope.tree.lineno)  # type: ignore[attr-defined]
        body = [*body, end]
    definition = copy.copy(scope.tree)
    definition.name, definition.body = name, body
    own = [name for name in scope.parameters if name not in scope.statics]
    beyond = program.device_arrays if kernel else ()
    definition.args = ast.arguments([], [ast.arg(n) for n in ("__t", "__env", *own, *beyond)], None, [], [], None, [])
    fill_empty_bodies(definition, location_of(scope.tree))
    give_lines(definition.body)
    return ast.fix_missing_locations(definition)


def fill_empty_bodies(definition: ast.FunctionDef, at: Location) -> None:
    """A ``pass`` where constants folded away all that a function, a loop or a branch had."""
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef | ast.For | ast.While | ast.If) and not node.body:
            nothing = ast.Pass()
            nothing.at = at if node is definition else location_of(node)  # type: ignore[attr-defined]
            node.body = [nothing]


def give_lines(body: list[ast.stmt]) -> None:
    """Line numbers for the compiler: a statement's own, for all that is in it."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
                node.lineno = node.end_lineno = location_of(statement).line  # type: ignore[attr-defined]
                node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        for inner in ("body", "orelse"):
            give_lines(getattr(statement, inner, []))
