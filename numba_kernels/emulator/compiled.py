"""A kernel's compiled forms: made once for all equal kernels, and kept on disk."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError

from . import disk_cache
from .environment import Env
from .memory import borrow, fill_bytes
from .rewriting import JIT_OPTIONS, Program, is_device_function, python_function, rewrite
from .threads import thread_image
from .words import njit, peek, poke

# A kernel without waits: each thread runs to its end in one loop.
_PLAIN = """
def run_plain(env, {arguments}):
    threads = peek(env, {DIM_X}) * peek(env, {DIM_Y}) * peek(env, {DIM_Z})
    for z in range(peek(env, {GRID_Z})):
        for y in range(peek(env, {GRID_Y})):
            for x in range(peek(env, {GRID_X})):
                poke(env, {BLOCK_X}, x)
                poke(env, {BLOCK_Y}, y)
                poke(env, {BLOCK_Z}, z)
                poke(env, {EPOCH}, peek(env, {EPOCH}) + 1)
                poke(env, {BLOCK_EPOCH}, peek(env, {EPOCH}))
                fill_bytes(peek(env, {ARENA}), peek(env, {ARENA_BYTES}))
                fill_bytes(peek(env, {LOCALS}), peek(env, {LOCAL_BYTES}) * threads)
                for k in range(threads):
                    t = peek(peek(env, {ORDER}), k)
                    poke(env, {THREAD}, t)
                    kernel(t, env, {borrowed})
"""
# A kernel with waits: the image of a thread that has not started, for the scheduler to copy.
_THREAD = """
def make_thread(image, t, env, {arguments}):
    return thread_image(kernel(t, env, {borrowed}), image)
"""


class Compiled:
    """A program and its Numba dispatcher ``entry``, shared by every launch of equal kernels.

    ``parameters``: how many the kernel has; ``kinds``: its sites' kinds, by number; ``file``: the entry's in the disk cache.
    """

    def __init__(self, function: Any, mode: str) -> None:
        self.program: Program = rewrite(function, full=mode == "full", tracked=mode == "tracked")
        self.parameters = python_function(function).__code__.co_argcount
        self.kinds = np.array([0, *(int(s.kind) for s in self.program.sites)], np.int64)
        names = [f"a{k}" for k in range(self.parameters)]
        kind, template = ("make_thread", _THREAD) if self.program.sites else ("run_plain", _PLAIN)
        name = f"{kind}_{self.program.tag}"
        text = template.format(
            arguments=", ".join(names), borrowed=", ".join(f"borrow({n})" for n in names), **{w.name: int(w) for w in Env}
        ).replace(f"def {kind}(", f"def {name}(")
        namespace: dict[str, Any] = {"peek": peek, "poke": poke, "borrow": borrow, "thread_image": thread_image}
        namespace.update(fill_bytes=fill_bytes, __name__=__name__)
        self.file = disk_cache.entry_file(text, {**namespace, "kernel": self._content()})
        namespace["kernel"] = njit(**JIT_OPTIONS)(self.program.function)
        exec(compile(text, str(self.file or f"<emulated {self.program.name}>"), "exec"), namespace)
        self.entry = njit(nogil=True, no_cfunc_wrapper=True)(namespace[name])
        if self.file is not None:
            disk_cache.keep(self.entry)

    def _content(self) -> Any:
        """All that the kernel's machine code depends on."""
        program = self.program
        functions = {name: python_function(program.namespace[name]) for name in program.alone.values()}
        functions[program.function.__name__] = program.function
        used = {name for function in functions.values() for name in function.__code__.co_names} - set(functions)
        captured = {name: program.namespace[name] for name in used if name in program.namespace}
        return program.source, sorted(captured.items()), tuple(sorted(JIT_OPTIONS.items()))

    def run(self, *args: Any) -> Any:
        """Call the entry, compiled before for the types of the first call's arguments, by one process at a time."""
        if not self.entry.signatures:
            with collector_paused(), disk_cache.locked(self.file), contextlib.suppress(NumbaError, TypeError, ValueError):
                self.entry.compile(tuple(numba.typeof(a) for a in args))  # what it refuses, the call below refuses in words
        return self.entry(*args)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's garbage collector, which otherwise takes a fifth of a compilation's time (30 % where torch is loaded)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_lock = threading.Lock()
_compiled: dict[Any, Compiled] = {}
_kept: dict[int, Any] = {}  # objects that stand in a key by their id


def compiled(function: Any, mode: str) -> Compiled:
    """A kernel's compiled form: "fast"; "tracked", which also records the line that runs; or "full"."""
    key = (_key(python_function(function)), mode)
    with _lock:
        if key not in _compiled:
            with collector_paused():
                _compiled[key] = Compiled(function, mode)
        return _compiled[key]


def _key(value: Any) -> Any:
    """Equal for two captured values that make the same code."""
    if is_device_function(value):
        plain = python_function(value)
        cells = []
        for cell in plain.__closure__ or ():
            try:
                cells.append(_key(cell.cell_contents))
            except ValueError:
                cells.append("empty")
        return ("function", plain.__code__, id(plain.__globals__), tuple(cells))
    if isinstance(value, tuple):
        return ("tuple", tuple(_key(v) for v in value))
    if isinstance(value, bool | int | str | bytes | None):
        return (type(value), value)
    if isinstance(value, float | np.generic):
        return (type(value), np.asarray(value).tobytes())
    _kept[id(value)] = value
    return ("object", id(value))
