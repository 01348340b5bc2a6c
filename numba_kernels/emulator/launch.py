"""Launching a kernel: its arguments checked, a launch's memory, the run."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from . import contraction, ordering, races, scheduler
from .compiled import Compiled, compiled
from .environment import BLOCK_SPAN, BLOCKS_AT, MOST_BLOCKS, Env, Kind
from .errors import CheckLimit, CompileError, EmulatorError, KernelException, OutOfBounds
from .indexing import Found
from .report import Report
from .signatures import converted, signatures_of
from .stopping import stoppable
from .words import TICKS_BETWEEN, Stopped

MAX_THREADS = 1024  # a block, as on every CUDA device
# Of sm_90 (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_SHARED_BYTES = 227 * 1024
MOST_REPEATED = 1 << 29  # bytes of arrays that the fast form keeps a copy of, to find a fault's line in a second run
# An H200's multiprocessors; the threads, blocks and bytes of shared memory that each holds; the bytes that a block costs besides.
MULTIPROCESSORS, THREADS, BLOCKS, SHARED_BYTES, RESERVED_BYTES = 132, 2048, 32, 228 * 1024, 1024
POOL_BYTES = 1 << 28  # address space for the vectors of ordering.py
IMAGE_BYTES = 1 << 16  # a thread's arguments and live variables; a few hundred bytes in practice


def resident_blocks(threads: int, shared_bytes: int) -> int:
    """Blocks that an H200 holds at once, as far as that hangs on their threads and shared memory; registers may let in fewer."""
    return MULTIPROCESSORS * min(BLOCKS, THREADS // threads, SHARED_BYTES // (shared_bytes + RESERVED_BYTES))


def _extents(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(given) <= 3 or any(int(v) < 0 for v in given):
        raise ValueError(f"{what} is one to three sizes, not {value!r}")
    x, y, z = (*(int(v) for v in given), 1, 1)[:3]
    return x, y, z


class EmulatedKernel:
    """A ``numba.cuda`` kernel that runs on the CPU, from the kernel's own source.

    ``function``: a plain Python function or a ``cuda.jit`` dispatcher; scalars are converted to the types of its signature, or of
    ``signature``, as a GPU launch converts them. ``check``: ``"fast"`` finds divergent barriers and
    collectives, wrong masks and accesses out of bounds, and poisons shared and local memory with NaN; ``"full"`` also finds
    reads of shared memory that nothing wrote, and data races. ``accepted``: numba-cuda is known to compile the kernel, and is not
    asked. Raises :class:`UnsupportedKernel` for a form it cannot
    rewrite. Thread-safe; equal kernels (same code, same captured values) share their compiled form.
    """

    def __init__(self, function: Any, check: str = "fast", *, signature: Any = None, accepted: bool = False) -> None:
        if check not in ("fast", "full"):
            raise ValueError(f"check is 'fast' or 'full', not {check!r}")
        self.function = function
        self.check = check
        self.accepted = accepted
        self._made: Compiled | None = None
        self.signatures = signatures_of(function, signature)

    def _get(self, args: Sequence[Any] = ()) -> Compiled:
        if self._made is None or self._made.program.asked_dtypes:
            self._made = compiled(self.function, self.check, args)
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
        same_value: str = "note",
    ) -> list[str]:
        """Run ``grid`` blocks of ``block`` threads; arrays among ``args`` are written in place.

        ``cluster``: how many blocks run together, 1, 2, 4, 8 or 16 along the grid's first axis; blocks of whole warps along one
        axis, and the fast check. The shared memory of block ``r`` lies ``r * environment.BLOCK_SPAN`` bytes from the first
        one's, and an intrinsic that waits says so (rewriting/targets.py). With ``schedule_seed``, one warp then goes on more
        seldom than the others.

        ``same_value``: what the full check makes of two threads that write the same value to one place, in no order: "note"
        (among what is returned) or "error" (a :class:`DataRace`).

        ``schedule_seed``: the order of warps and lanes between waits is drawn from it; None runs them in order. Returns notes, of
        what is no error and yet worth a look. Raises an
        :class:`EmulatorError` that names kernel, line, block and thread (no line from the fast form beyond 512 MiB of arrays);
        the arrays then hold what was written so far.
        """
        made = self._get(args)
        program = made.program
        grid3, block3 = _extents(grid, "grid"), _extents(block, "block")
        threads = block3[0] * block3[1] * block3[2]
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"a block has 1 to {MAX_THREADS} threads, not {threads}")
        for what, given, limits in (("grid", grid3, MAX_GRID), ("block", block3, MAX_BLOCK)):
            for axis, size, limit in zip("xyz", given, limits, strict=True):
                if size > limit:
                    raise ValueError(f"{what} {axis} is at most {limit}, not {size}")
        shared_bytes = program.static_bytes + dynamic_shared_bytes
        if not dynamic_shared_bytes >= 0 or shared_bytes > MAX_SHARED_BYTES:
            raise ValueError(f"shared memory: at most {MAX_SHARED_BYTES} bytes a block, not {shared_bytes}")
        if len(args) != made.parameters:
            raise TypeError(f"{program.name} takes {made.parameters} arguments, {len(args)} given")
        if 0 in grid3:
            raise ValueError(f"{program.name}: an empty grid {grid3}")
        if cluster not in (1, 2, 4, 8, MOST_BLOCKS) or grid3[0] % cluster:
            raise ValueError(f"cluster is 1, 2, 4, 8 or 16 blocks, and divides the grid's {grid3[0]}; not {cluster}")
        if cluster > 1 and (threads % 32 or threads != block3[0] or self.check == "full"):
            raise ValueError(f"{program.name}: a cluster's blocks are whole warps along one axis, in the fast check")
        args = converted(program.name, self.signatures, args)
        if not self.accepted:
            made.accept(args)
        if same_value not in ("note", "error"):
            raise ValueError(f"same_value is 'note' or 'error', not {same_value!r}")
        settings = (grid3, block3, threads, dynamic_shared_bytes, schedule_seed, cluster, same_value == "error")
        arrays = [a for a in races.arrays_in((*args, *program.device_arrays.values())) if a.flags.writeable]
        repeatable = sum(a.nbytes for a in arrays) <= MOST_REPEATED
        before = [a.copy() for a in arrays] if repeatable else []
        full_check = _one_at_a_time if program.full else contextlib.nullcontext()
        try:
            with full_check:
                return _Launch(made, *settings).run(tuple(args))
        except CheckLimit as error:
            if not repeatable or "in part" not in error.reason:
                raise
            for array, old in zip(arrays, before, strict=True):
                array[...] = old
            with full_check:
                return _Launch(made, *settings).run(tuple(args), fine=True)
        except EmulatorError as error:
            if error.line or not repeatable:
                raise
            # The fast form doesn't record lines: run the same launch again, from the same memory, in the form that does.
            for array, old in zip(arrays, before, strict=True):
                array[...] = old
            _Launch(compiled(self.function, "tracked", args), *settings).run(tuple(args))
            raise

    def most_together(self, block: int | Sequence[int], dynamic_shared_bytes: int = 0) -> int:
        """The most blocks of a grid that synchronises."""
        x, y, z = _extents(block, "block")
        return resident_blocks(-(-x * y * z // 32) * 32, self._get().program.static_bytes + dynamic_shared_bytes)

    def remarks(self, args: Sequence[Any]) -> list[str]:
        """After a launch with such arguments: what a GPU's compiler may round otherwise, in one note; none where the dispatcher
        was made with ``fma=False``."""
        options = getattr(self.function, "targetoptions", {})
        places = self._get(args).contracted(converted(self._get(args).program.name, self.signatures, args))
        return [contraction.remark(self._get(args).program.name, places)] if places and options.get("fma", True) else []


_one_at_a_time = threading.Lock()  # launches in the full check, see accounting.py


def zeros(size: int) -> np.ndarray:
    """So many zero bytes, in huge pages where there are many: the full check keeps 14 bytes for each of an array, and a
    fault for every 4 KiB of them took a fifth of its time."""
    if size < 1 << 22 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(size, np.uint8)
    pages = mmap.mmap(-1, size)
    with contextlib.suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


class _Launch:
    """The memory of one launch. Nothing here outlives it or is shared with another."""

    def __init__(
        self,
        made: Compiled,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        threads: int,
        dynamic_bytes: int,
        seed: int | None,
        cluster: int,
        strict: bool,
    ) -> None:
        self.made, self.program = made, made.program
        self.env = np.zeros(Env.SIZE, np.int64)
        self.memory: list[Any] = []
        self.report = Report(self.program, self.env, seed)
        env, program = self.env, self.program
        env[Env.DYNAMIC] = -(-program.static_bytes // 16) * 16
        env[Env.ARENA_BYTES] = env[Env.DYNAMIC] + dynamic_bytes
        blocks, padded = grid[0] * grid[1] * grid[2], -(-threads // 32) * 32
        together = self.together(blocks, padded, cluster)
        env[Env.PADDED], env[Env.BLOCKS] = padded, blocks
        threads = threads if together == 1 else padded * together
        self.threads = threads
        env[Env.LAYOUT] = scheduler.LAYOUT
        env[[Env.GRID_X, Env.GRID_Y, Env.GRID_Z]] = grid
        env[[Env.DIM_X, Env.DIM_Y, Env.DIM_Z]] = block
        env[Env.TOGETHER], env[Env.STRICT], env[Env.PROVES] = together, strict, not program.spins_store
        env[Env.SPAN] = BLOCK_SPAN if cluster > 1 else -(-env[Env.ARENA_BYTES] // 64) * 64
        env[Env.EPOCHS] = self.room(16 * together)
        if any(site.kind is Kind.SPIN for site in program.sites):
            env[Env.SPINS] = self.room(8 * scheduler.SLOTS * threads)
        env[Env.TICKS] = TICKS_BETWEEN
        if cluster == 1:
            env[Env.ARENA] = self.room(int(env[Env.SPAN]) * together)
        else:
            if env[Env.ARENA_BYTES] > BLOCKS_AT:
                raise ValueError(f"shared memory: {env[Env.ARENA_BYTES]} bytes a block; a cluster's have {BLOCKS_AT}")
            env[Env.ARENA] = self.room(BLOCK_SPAN * cluster, BLOCK_SPAN * MOST_BLOCKS)
            ctypes.c_int64.from_address(int(env[Env.ARENA]) + BLOCKS_AT).value = cluster
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

    def together(self, blocks: int, padded: int, cluster: int) -> int:
        """How many blocks run at once: a cluster's; where threads may wait for other blocks as many as a GPU takes; else one."""
        if cluster > 1 or not (self.program.spins or self.program.syncs_grid):
            return cluster
        resident = resident_blocks(padded, int(self.env[Env.ARENA_BYTES]))
        if self.program.syncs_grid and blocks > resident:
            raise ValueError(
                f"{self.program.name}: a grid that synchronises has at most {resident} blocks of {padded} threads, not {blocks}"
            )
        return min(blocks, resident)

    def room(self, size: int, alignment: int = 64) -> int:
        """The address of ``size`` zero bytes, aligned, that live as long as the launch."""
        array = zeros(size + alignment)
        self.memory.append(array)
        return -(-array.ctypes.data // alignment) * alignment

    def _follow(self, arrays: list[np.ndarray], fine: bool) -> None:
        """Room for the full check's cells and clocks."""
        env = self.env
        env[Env.SHIFT] = 0 if fine else races.shift_of(self.program.grain)
        env[Env.CELLS] = self.room(races.room_for_cells(int(env[Env.ARENA_BYTES]), int(env[Env.SHIFT])))
        env[Env.SEEN] = self.room(8 * races.WARP * self.threads)
        if self.program.fences:
            self._order()
        table = []
        for start, end, grain in races.regions_of(arrays):
            shift = 0 if fine else races.shift_of(grain)
            table += [start, end, shift, self.room(races.room_for_cells(end - start, shift))]
        words = np.array([*table, 0], np.int64)
        self.memory.append(words)
        env[Env.REGIONS], env[Env.REGION_COUNT] = words.ctypes.data, len(table) // races.REGION

    def _order(self) -> None:
        """Room for what ordering.py keeps."""
        env, threads = self.env, self.threads
        everyone = int(env[Env.BLOCKS] * env[Env.PADDED])
        env[Env.VECTOR] = 8 * (int(env[Env.BLOCKS]) + min(everyone, ordering.MOST_RELEASERS) + 1)
        env[Env.POOL], env[Env.POOL_END] = self.room(POOL_BYTES), POOL_BYTES
        env[Env.IDS], env[Env.OWN] = self.room(8 * everyone), self.room(8 * threads)
        env[Env.OF_BLOCK] = self.room(8 * int(env[Env.TOGETHER]))
        env[Env.FENCED] = self.room(8 * ordering.FENCE * threads)
        env[Env.PLACES] = self.room(16 * ordering.MOST_PLACES)

    def run(self, args: tuple[Any, ...], *, fine: bool = False) -> list[str]:
        """Run it; the notes. ``fine``: the full check has a cell a byte."""
        env, args = self.env.ctypes.data, (*args, *self.program.device_arrays.values())
        if self.program.full:
            try:
                self._follow(races.arrays_in(args), fine)
            except OSError as error:
                reason = "the full check's account of such arrays needs more memory than the system gives: try smaller ones"
                raise CheckLimit(reason, kernel=self.program.name, file=self.program.file, line=self.program.line) from error
        try:
            if self.program.sites:
                image = self.room(IMAGE_BYTES)
                size, first, resume = self.made.run(image, 0, env, *args)
                if size > IMAGE_BYTES:
                    raise CompileError(f"a thread needs {size} bytes", kernel=self.program.name, file=self.program.file, line=0)
                size = -(-size // 16) * 16
                states = self.room(size * self.threads)
                waits = self.room(16 * self.threads)
                kinds = self.made.kinds.ctypes.data
                with stoppable(self.env):
                    fault = scheduler.run_grid(env, resume, image, first, states, size, kinds, waits, self.random.ctypes.data)
                if fault:
                    raise self.report.of_fault()
            else:
                with stoppable(self.env):
                    self.made.run(env, *args)
                if self.env[Env.FAULT]:
                    raise self.report.of_fault()
            return self.report.notes()
        except NumbaError as error:
            raise CompileError(
                f"Numba cannot compile it: {error}",
                kernel=self.program.name,
                file=self.program.file,
                line=self.program.line,
            ) from error
        except EmulatorError:
            raise
        except Stopped as error:
            raise KeyboardInterrupt from error
        except Found as error:
            raise self.report.of_fault() from error
        except IndexError as error:
            raise self.report.error(OutOfBounds, str(error)) from error
        except Exception as error:
            if self.env[Env.EPOCH] == 0 and isinstance(error, NotImplementedError):  # a type that Numba lowers on a GPU alone
                raise CompileError(
                    f"the emulator does not support it: {error}",
                    kernel=self.program.name,
                    file=self.program.file,
                    line=self.program.line,
                ) from error
            if self.env[Env.EPOCH] == 0:  # nothing ran: an argument that Numba can't type, or a defect here
                raise
            raise self.report.error(KernelException, f"{type(error).__name__}: {error}") from error
