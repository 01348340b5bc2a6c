"""A kernel's compiled forms: made once for all equal kernels, and kept on disk."""

from __future__ import annotations

import contextlib
import json
import threading
import types as python_types
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError

from ..undisturbed import undisturbed
from . import disk_cache, half, numba_cuda, plain
from .library import EntryCompiler
from .memory import borrow
from .rewriting import Program, is_device_function, is_shared, jit_options, python_function, rewrite
from .threads import thread_image
from .words import njit

# A kernel with waits: the image of a thread that has not started, for the scheduler to copy.
_THREAD = """
def make_thread(image, t, env, {arguments}):
    return thread_image(kernel(t, env, {borrowed}), image)
"""


class Compiled:
    """A program and its Numba dispatcher ``entry``, shared by every launch of equal kernels.

    ``parameters``: how many the kernel has; ``kinds``: its sites' kinds, by number; ``file``: the entry's in the disk cache.
    """

    def __init__(self, function: Any, mode: str, dtypes: dict[str, Any], accepted: dict[Any, list[Any]]) -> None:
        self.mode, self.dtypes = mode, dtypes
        self._accepted = accepted  # by types of arguments, and shared by the forms of a kernel: what numba-cuda said
        self._build(function, nrt=False)

    def _build(self, function: Any, *, nrt: bool) -> None:
        """``nrt``: with Numba's counting of references, which some copies of slices need (a tenth of a norm kernel's time)."""
        self.options = jit_options(self.mode == "full", nrt)
        self.program: Program = rewrite(
            function, self.options, self.dtypes, full=self.mode == "full", tracked=self.mode == "tracked"
        )
        self.function = python_function(function)
        self.parameters = python_function(function).__code__.co_argcount
        self.kinds = np.array([0, *(int(s.kind) for s in self.program.sites)], np.int64)
        names = [f"a{k}" for k in range(self.parameters + len(self.program.device_arrays))]
        kind, template = ("make_thread", _THREAD) if self.program.sites else ("run_plain", plain.TEMPLATE)
        name = f"{kind}_{self.program.tag}"
        text = template.format(arguments=", ".join(names), borrowed=", ".join(f"borrow({n})" for n in names))
        text = text.replace(f"def {kind}(", f"def {name}(")
        namespace: dict[str, Any] = {"borrow": borrow, "__name__": __name__}
        namespace.update(thread_image=thread_image)
        namespace.update(enter_block=plain.enter_block, enter_thread=plain.enter_thread, goes_on=plain.goes_on)
        self.file = disk_cache.entry_file(text, {**namespace, "kernel": self._content()})
        namespace["kernel"] = njit(**self.options)(self.program.function)
        exec(compile(text, str(self.file or f"<emulated {self.program.name}>"), "exec"), namespace)
        self.entry = njit(nogil=True, no_cfunc_wrapper=True, pipeline_class=EntryCompiler)(namespace[name])
        if self.file is not None:
            disk_cache.keep(self.entry)

    def _content(self) -> Any:
        """All that the kernel's machine code depends on."""
        program = self.program
        own = [name for name in program.alone.values() if not is_shared(name)]
        functions = {name: python_function(program.namespace[name]) for name in own}
        functions[program.function.__name__] = program.function
        used = {name for function in functions.values() for name in function.__code__.co_names} - set(program.alone.values())
        captured = {name: program.namespace[name] for name in used if name in program.namespace}
        arrays = list(program.device_arrays.values())  # not digestible: what names one is not kept
        return program.source, sorted(captured.items()), tuple(sorted(self.options.items())), arrays

    def accept(self, args: tuple[Any, ...]) -> None:
        """Ask numba-cuda whether it takes the kernel with such arguments: once, ever, where compiled kernels are kept."""
        kinds = tuple(numba.typeof(a) for a in args)
        if kinds in self._accepted:
            return
        noted = None if self.file is None else self.file.with_suffix(f".{disk_cache.digest(repr(kinds))}.accepted")
        places: list[Any] | None = None
        if noted is not None:
            with contextlib.suppress(OSError, ValueError):
                places = json.loads(noted.read_text())
        if places is None:
            places = [list(place) for place in numba_cuda.check(self.function, kinds)]
            if noted is not None:
                with contextlib.suppress(OSError):
                    noted.write_text(json.dumps(places))
        self._accepted[kinds] = places

    def contracted(self, args: tuple[Any, ...]) -> list[tuple[str, int]]:
        """File and line of what a GPU may round otherwise, where numba-cuda was asked about such arguments."""
        places = self._accepted.get(tuple(numba.typeof(a) for a in args), [])
        return [(file, line) for file, line in places]

    def run(self, *args: Any) -> Any:
        """Call the entry, compiled before for the types of the first call's arguments, by one process at a time."""
        if not self.entry.signatures:
            if any(half.is_half(a) for a in args):
                half.enable()
            kinds = tuple(numba.typeof(a) for a in args)
            with disk_cache.locked(self.file), contextlib.suppress(NumbaError, TypeError, ValueError):
                try:
                    undisturbed(self.entry.compile, kinds)  # what it refuses, the call below refuses in words
                except NumbaError as error:
                    if "NRT required" not in str(error):
                        raise
                    self._build(self.function, nrt=True)
                    undisturbed(self.entry.compile, kinds)
        return self.entry(*args)


_lock = threading.Lock()
_compiled: dict[Any, list[Compiled]] = {}  # by key: one, or one for each dtype
_accepted: dict[Any, dict[Any, list[Any]]] = {}  # by the key without the mode
_kept: dict[int, Any] = {}  # objects that stand in a key by their id


def compiled(function: Any, mode: str, args: Sequence[Any]) -> Compiled:
    """A kernel's compiled form: "fast"; "tracked", which also records the line that runs; or "full". Of ``args``, it may depend
    on the dtypes of arrays, where the kernel asks for them."""
    plain = python_function(function)
    dtypes = {p: a.dtype for p, a in zip(plain.__code__.co_varnames, args, strict=False) if isinstance(a, np.ndarray)}
    alone = _key(plain)
    with _lock:
        forms = _compiled.setdefault((alone, mode), [])
        for made in forms:
            if all(made.dtypes.get(p) == dtypes.get(p) for p in made.program.asked_dtypes):
                return made
        forms.append(undisturbed(Compiled, function, mode, dtypes, _accepted.setdefault(alone, {})))
        return forms[-1]


def _key(value: Any, seen: tuple[Any, ...] = ()) -> Any:
    """Equal for two captured values that make the same code. ``seen``: the functions around, by their code."""
    if is_device_function(value):
        plain = python_function(value)
        if plain.__code__ in seen:
            return ("function", plain.__code__)
        seen = (*seen, plain.__code__)
        cells = []
        for cell in plain.__closure__ or ():
            try:
                cells.append(_key(cell.cell_contents, seen))
            except ValueError:
                cells.append("empty")
        return ("function", plain.__code__, id(plain.__globals__), tuple(cells), plain.__defaults__, _globals_key(plain, seen))
    if isinstance(value, tuple):
        return ("tuple", tuple(_key(v, seen) for v in value))
    if isinstance(value, bool | int | str | bytes | None):
        return (type(value), value)
    if isinstance(value, float | np.generic):
        return (type(value), np.asarray(value).tobytes())
    if isinstance(value, np.ndarray):
        return ("array", value.dtype, value.shape, value.tobytes())
    _kept[id(value)] = value
    return ("object", id(value))


def _globals_key(function: Any, seen: tuple[Any, ...]) -> tuple[Any, ...]:
    """The keys of the globals that a function's code names, and of the attributes of modules and classes among them: the values
    that compiled code has, as Numba takes them when it compiles."""
    named = set(names_of(function.__code__))
    found: list[Any] = []
    for name in sorted(named):
        value = function.__globals__.get(name, found)
        if value is found:
            continue
        found.append((name, _key(value, seen)))
        if isinstance(value, python_types.ModuleType | type) and not is_of_a_library(value):
            inside = [(n, getattr(value, n)) for n in sorted(named) if hasattr(value, n)]
            found += [(name, n, _key(v, seen)) for n, v in inside if not isinstance(v, python_types.ModuleType)]
    return tuple(found)


def names_of(code: python_types.CodeType) -> tuple[str, ...]:
    """The names of a code object and of those inside it."""
    inner = [c for c in code.co_consts if isinstance(c, python_types.CodeType)]
    return (*code.co_names, *(name for c in inner for name in names_of(c)))


def is_of_a_library(value: Any) -> bool:
    """Whether a module or class is one that nobody changes while it runs."""
    name = value.__name__ if isinstance(value, python_types.ModuleType) else value.__module__
    return name.partition(".")[0] in ("numba", "numpy", "math", "builtins", "operator", "cmath")
