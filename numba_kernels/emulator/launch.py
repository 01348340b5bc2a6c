"""Launching a rewritten kernel: its compiled forms, a launch's memory, and the errors that come out of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from . import disk_cache, machine, races, scheduler
from .errors import (
    CompileError,
    DataRace,
    DivergentBarrier,
    DivergentCollective,
    EmulatorError,
    KernelException,
    MaskError,
    NeverTrue,
    OutOfBounds,
    UninitializedRead,
)
from .locations import Location, location_of
from .machine import Env, njit
from .rewrite import JIT_OPTIONS, Program, is_device_function, python_function, rewrite
from .sites import Fault

MAX_THREADS = 1024  # a block, as on every CUDA device
MOST_REPEATED = 1 << 29  # bytes of arrays that the fast form keeps a copy of, to find a fault's line in a second run
IMAGE_BYTES = 1 << 16  # a thread's arguments and live variables; a few hundred bytes in practice

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
_THREAD = """
def make_thread(image, t, env, {arguments}):
    return thread_image(kernel(t, env, {borrowed}), image)
"""


class _Compiled:
    """A program and its Numba dispatchers, shared by every launch of equal kernels."""

    def __init__(self, function: Any, mode: str) -> None:
        self.program: Program = rewrite(function, full=mode == "full", tracked=mode == "tracked")
        self.kernel = njit(**JIT_OPTIONS)(self.program.function)
        self.kinds = np.array([0, *(int(s.kind) for s in self.program.sites)], np.int64)
        count = len(python_function(function).__code__.co_varnames[: python_function(function).__code__.co_argcount])
        names = [f"a{k}" for k in range(count)]
        text = (_THREAD if self.program.sites else _PLAIN).format(
            arguments=", ".join(names),
            borrowed=", ".join(f"borrow({n})" for n in names),
            **{w.name: int(w) for w in Env},
        )
        entry_name = "make_thread" if self.program.sites else "run_plain"
        text = text.replace(f"def {entry_name}(", f"def {entry_name}_{self.program.tag}(")
        namespace: dict[str, Any] = {"kernel": self.kernel, "__name__": __name__}
        for name in ("peek", "poke", "borrow", "thread_image", "fill_bytes"):
            namespace[name] = getattr(machine, name)
        # Lines are numbered by process, so only the form that doesn't record them is kept on disk_cache.
        file = disk_cache.entry_file(text, {**namespace, "kernel": self._content()}) if mode == "fast" else None
        exec(compile(text, str(file or f"<emulated {self.program.name}>"), "exec"), namespace)
        entry = namespace[f"{entry_name}_{self.program.tag}"]
        self.entry = njit(nogil=True, no_cfunc_wrapper=True, cache=file is not None)(entry)
        self.parameters = count

    def _content(self) -> Any:
        """All that the kernel's machine code depends on."""
        program = self.program
        captured = {n: v for n, v in program.namespace.items() if n != "__builtins__" and n not in program.made}
        return program.source, captured, tuple(sorted(JIT_OPTIONS.items()))


_lock = threading.Lock()
_compiled: dict[Any, _Compiled] = {}
_kept: dict[int, Any] = {}  # objects that stand in a key by their id


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


def _compile(function: Any, mode: str) -> _Compiled:
    """A kernel's compiled form: "fast"; "tracked", which also records the line that runs; or "full"."""
    key = (_key(python_function(function)), mode)
    with _lock:
        if key not in _compiled:
            _compiled[key] = _Compiled(function, mode)
        return _compiled[key]


def _extents(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(given) <= 3 or any(int(v) < 0 for v in given):
        raise ValueError(f"{what} is one to three sizes, not {value!r}")
    x, y, z = (*(int(v) for v in given), 1, 1)[:3]
    return x, y, z


class EmulatedKernel:
    """A ``numba.cuda`` kernel that runs on the CPU, from the kernel's own source.

    ``function``: a plain Python function or a ``cuda.jit`` dispatcher. ``check``: ``"fast"`` finds divergent barriers and
    collectives, wrong masks and accesses out of bounds, and poisons shared and local memory with NaN; ``"full"`` also finds
    reads of shared memory that nothing wrote, and data races. Raises :class:`UnsupportedKernel` for a form it cannot
    rewrite. Thread-safe; equal kernels (same code, same captured values) share their compiled form.
    """

    def __init__(self, function: Any, check: str = "fast") -> None:
        if check not in ("fast", "full"):
            raise ValueError(f"check is 'fast' or 'full', not {check!r}")
        self.function = function
        self.check = check
        self._made: _Compiled | None = None

    def _get(self) -> _Compiled:
        if self._made is None:
            self._made = _compile(self.function, self.check)
        return self._made

    @property
    def source(self) -> str:
        """The rewritten source, device functions first."""
        return self._get().program.source

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        dynamic_shared_bytes: int = 0,
        schedule_seed: int | None = None,
        cluster: int = 1,
    ) -> None:
        """Run ``grid`` blocks of ``block`` threads; arrays among ``args`` are written in place.

        ``cluster``: how many blocks run together, 1, 2, 4, 8 or 16 along the grid's first axis; blocks of whole warps along one
        axis, and the fast check. The shared memory of block ``r`` lies ``r * machine.BLOCK_SPAN`` bytes from the first one's, and
        an intrinsic that waits says so (rewrite.py). With ``schedule_seed``, one warp then goes on more seldom than the others.

        ``schedule_seed``: the order of warps and lanes between waits is drawn from it; None runs them in order. Raises
        an :class:`EmulatorError` that names kernel, line, block and thread (no line from the fast form beyond 512 MiB of
        arrays); the arrays then hold what was written so far.
        """
        made = self._get()
        program = made.program
        grid3, block3 = _extents(grid, "grid"), _extents(block, "block")
        threads = block3[0] * block3[1] * block3[2]
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"a block has 1 to {MAX_THREADS} threads, not {threads}")
        if len(args) != made.parameters:
            raise TypeError(f"{program.name} takes {made.parameters} arguments, {len(args)} given")
        if 0 in grid3:
            raise ValueError(f"{program.name}: an empty grid {grid3}")
        if cluster not in (1, 2, 4, 8, machine.MOST_BLOCKS) or grid3[0] % cluster:
            raise ValueError(f"cluster is 1, 2, 4, 8 or 16 blocks, and divides the grid's {grid3[0]}; not {cluster}")
        if cluster > 1 and (threads % 32 or threads != block3[0] or self.check == "full"):
            raise ValueError(f"{program.name}: a cluster's blocks are whole warps along one axis, in the fast check")
        settings = (grid3, block3, threads, dynamic_shared_bytes, schedule_seed, cluster)
        arrays = [a for a in args if isinstance(a, np.ndarray) and a.flags.writeable]
        repeatable = self.check == "fast" and sum(a.nbytes for a in arrays) <= MOST_REPEATED
        before = [a.copy() for a in arrays] if repeatable else []
        try:
            _Launch(made, *settings).run(tuple(args))
        except EmulatorError as error:
            if error.line or not repeatable:
                raise
            # The fast form doesn't record lines: run the same launch again, from the same memory, in the form that does.
            for array, old in zip(arrays, before, strict=True):
                array[...] = old
            _Launch(_compile(self.function, "tracked"), *settings).run(tuple(args))
            raise


class _Launch:
    """The memory of one launch. Nothing here outlives it or is shared with another."""

    def __init__(
        self,
        made: _Compiled,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        threads: int,
        dynamic_bytes: int,
        seed: int | None,
        cluster: int,
    ) -> None:
        self.made, self.program, self.of_block = made, made.program, threads
        threads *= cluster
        self.threads = threads
        self.env = np.zeros(Env.SIZE, np.int64)
        self.memory: list[Any] = []
        env, program = self.env, self.program
        env[Env.LAYOUT] = scheduler.LAYOUT
        env[[Env.GRID_X, Env.GRID_Y, Env.GRID_Z]] = grid
        env[[Env.DIM_X, Env.DIM_Y, Env.DIM_Z]] = block
        env[Env.DYNAMIC] = -(-program.static_bytes // 16) * 16
        env[Env.ARENA_BYTES] = env[Env.DYNAMIC] + dynamic_bytes
        env[Env.CLUSTER] = cluster
        if cluster == 1:
            env[Env.ARENA] = self.room(int(env[Env.ARENA_BYTES]))
        else:
            if env[Env.ARENA_BYTES] > machine.BLOCK_SPAN:
                raise ValueError(f"shared memory: {env[Env.ARENA_BYTES]} bytes a block; a cluster's have {machine.BLOCK_SPAN}")
            env[Env.ARENA] = self.room(machine.BLOCK_SPAN * cluster, machine.BLOCK_SPAN * machine.MOST_BLOCKS)
        env[Env.CLUSTER_ARENA] = env[Env.ARENA]
        env[Env.LOCAL_BYTES] = -(-program.local_bytes // 16) * 16
        env[Env.LOCALS] = self.room(int(env[Env.LOCAL_BYTES]) * threads)
        for word in (Env.MASKS, Env.VALUES, Env.SOURCES, Env.ANSWERS, Env.ENDED):
            env[word] = self.room(8 * threads)
        self.random = np.zeros(1, np.int64)
        order = np.arange(threads, dtype=np.int64)
        if seed is not None:
            generator = np.random.default_rng(seed)
            order = generator.permutation(order)
            self.random[0] = generator.integers(1, 2**63)
        self.memory.append(order)
        env[Env.ORDER] = order.ctypes.data

    def room(self, size: int, alignment: int = 64) -> int:
        """The address of ``size`` zero bytes, aligned, that live as long as the launch."""
        array = np.zeros(size + alignment, np.uint8)
        self.memory.append(array)
        return -(-array.ctypes.data // alignment) * alignment

    def _follow(self, arrays: list[np.ndarray]) -> None:
        """Room for the full check's cells and clocks."""
        env = self.env
        env[Env.GRAIN] = self.program.grain
        env[Env.SHADOW] = self.room(races.room_for_cells(int(env[Env.ARENA_BYTES]), self.program.grain))
        env[Env.SEEN] = self.room(8 * races.WARP * self.threads)
        table = []
        for start, end, grain in races.regions_of(arrays):
            table += [start, end, grain, self.room(races.room_for_cells(end - start, grain))]
        words = np.array([*table, 0], np.int64)
        self.memory.append(words)
        env[Env.REGIONS], env[Env.REGION_COUNT] = words.ctypes.data, len(table) // races.REGION

    def run(self, args: tuple[Any, ...]) -> None:
        env = self.env.ctypes.data
        if self.program.full:
            self._follow([a for a in args if isinstance(a, np.ndarray)])
        try:
            if self.program.sites:
                image = self.room(IMAGE_BYTES)
                size, first, resume = self.made.entry(image, 0, env, *args)
                if size > IMAGE_BYTES:
                    raise CompileError(f"a thread needs {size} bytes", kernel=self.program.name, file=self.program.file, line=0)
                size = -(-size // 16) * 16
                states = self.room(size * self.threads)
                waits = self.room(16 * self.threads)
                kinds = self.made.kinds.ctypes.data
                fault = scheduler.run_grid(env, resume, image, first, states, size, kinds, waits, self.random.ctypes.data)
                if fault:
                    raise self.fault()
            else:
                self.made.entry(env, *args)
        except NumbaError as error:
            raise CompileError(
                f"Numba cannot compile it: {error}",
                kernel=self.program.name,
                file=self.program.file,
                line=self.program.line,
            ) from error
        except EmulatorError:
            raise
        except races.Found as error:
            raise self.found() from error
        except IndexError as error:
            raise self.error(OutOfBounds, str(error)) from error
        except Exception as error:
            if self.env[Env.EPOCH] == 0:  # nothing ran: an argument that Numba can't type, or a defect here
                raise
            raise self.error(KernelException, f"{type(error).__name__}: {error}") from error

    # --- errors ------------------------------------------------------------------------------------------------------

    def error(
        self, kind: type[EmulatorError], reason: str, thread: int | None = None, location: Location | None = None
    ) -> EmulatorError:
        """An error at the thread and line that run, or at others."""
        env = self.env
        where = location_of(int(env[Env.LOCATION])) if location is None else location
        if where.line == 0:
            where = Location(where.function, self.program.file, 0)
        if where.function not in (self.program.name, "?"):
            reason += f" (in {where.function})"
        return kind(
            reason,
            kernel=self.program.name,
            file=where.file,
            line=where.line,
            block=(int(env[Env.BLOCK_X]), int(env[Env.BLOCK_Y]), int(env[Env.BLOCK_Z])),
            thread=(int(env[Env.THREAD]) if thread is None else thread) % self.of_block,
        )

    def _whereabouts(self, thread: int, site: int) -> str:
        if site == 0:
            return f"thread {thread} has ended"
        found = self.program.sites[site - 1]
        return f"thread {thread} waits at {found.call} in line {found.location.line}"

    def found(self) -> EmulatorError:
        """The error for what the full check left in the environment."""
        fault, a, b, c, d = (int(v) for v in self.env[Env.FAULT : Env.FAULT_D + 1])
        if fault == Fault.UNINITIALIZED:
            reason = f"reads shared memory (byte {a}) that no thread of the block has written"
            return self.error(UninitializedRead, reason)
        if fault == Fault.INDEX:
            return self.error(OutOfBounds, f"index {a} is out of bounds for axis {c} with size {b}")
        before, now = ("read", "wrote")[c >> 1], ("reads", "writes")[c & 1]
        other = f"thread {a}" + (" of another block" if d else "")
        line = location_of(b).line
        missing = "blocks of one launch are not ordered" if d else "there is no barrier between"
        return self.error(DataRace, f"{now} an element that {other} {before} in line {line}, and {missing}")

    def fault(self) -> EmulatorError:
        """The error for the fault that the driver left in the environment."""
        fault, a, b, c, d = (int(v) for v in self.env[Env.FAULT : Env.FAULT_D + 1])
        site = self.program.sites[b - 1]
        here = site.location
        if fault == Fault.BARRIER:
            return self.error(DivergentBarrier, f"waits at {site.call}, but {self._whereabouts(c, d)}", thread=a, location=here)
        if fault == Fault.COLLECTIVE:
            reason = f"the mask of {site.call} names lane {c % 32}, but {self._whereabouts(c, d)}"
            return self.error(DivergentCollective, reason, thread=a, location=here)
        if fault == Fault.OTHER_MASK:
            reason = f"{site.call} with another mask than thread {c}'s"
            return self.error(DivergentCollective, reason, thread=a, location=here)
        if fault == Fault.NOT_IN_MASK:
            return self.error(MaskError, f"{site.call}: the lane is not in its own mask", thread=a, location=here)
        if fault == Fault.SOURCE:
            reason = f"{site.call} reads lane {c}, which takes no part in it"
            return self.error(MaskError, reason, thread=a, location=here)
        if fault == Fault.NEVER:
            self.env[Env.BLOCK_X] = self.env[Env.CLUSTER_X] + a // self.of_block
            return self.error(NeverTrue, f"waits at {site.call}, and no thread is left to end that", thread=a, location=here)
        raise AssertionError(f"unknown fault {fault}")
