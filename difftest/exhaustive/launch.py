"""Launching this room's kernels: on the caller's current CUDA stream, or on the emulator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from numba import types

from difftest.exhaustive import kernels, slots
from difftest.exhaustive.domain import Slice
from numba_kernels.backend.machine_code import Compiled, cached_code
from numba_kernels.emulator import EmulatedKernel

WORDS, FLOATS, DOUBLES = types.Array(types.uint64, 1, "C"), types.Array(types.float32, 1, "C"), types.Array(types.float64, 1, "C")
INTS, LONGS, BYTES = (types.Array(each, 1, "C") for each in (types.int32, types.int64, types.int8))
BLOCKS = 4  # side by side on a multiprocessor: 64 registers a thread; the judge of S0 spills 8 bytes, the others none
PLACE = (types.int64,) * 3  # row, column, width
TALLY = (LONGS, LONGS)
BOUNDS = (types.float64, types.float64, types.int64, types.float64, types.float64)  # of |h|, and `last`
PAIRS = (WORDS, WORDS, INTS, INTS, types.int64, *PLACE)
GATED = (WORDS, DOUBLES, INTS, DOUBLES, INTS, BYTES, *PLACE, *TALLY)
NORM = (WORDS, WORDS, INTS, INTS, FLOATS, FLOATS, FLOATS, *BOUNDS, *PLACE, *TALLY)


def words(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of 16-bit values as 1-D words of four, in the same memory."""
    return tensor.view(torch.int16).reshape(-1).view(torch.int64)


class Kernel:
    """A kernel by its maker's arguments; compiled for a device at its first launch there."""

    def __init__(self, make: Callable[..., Any], arguments: tuple[Any, ...], signature: tuple[Any, ...]) -> None:
        self.make, self.arguments, self.signature = make, arguments, signature

    def launch(self, device: torch.device, grid: tuple[int, int], *arguments: torch.Tensor | float | int) -> None:
        """Launches it over 1-D tensors of that device, and numbers."""
        if device.type == "cuda":
            _launch_on_gpu(self, device, grid, arguments)
            return
        emulated = _emulated(self.make, self.arguments)
        emulated.launch(grid, kernels.THREADS, [a.numpy() if isinstance(a, torch.Tensor) else a for a in arguments])


@cache
def pairs(interleaved: bool) -> Kernel:
    """The maker of inputs."""
    return Kernel(kernels.make_pairs, (interleaved,), PAIRS)


@cache
def gated_judge(storage: str, rounds: bool) -> Kernel:
    """The judge of gated activations."""
    return Kernel(kernels.make_gated_judge, (storage, rounds), GATED)


@cache
def norm_judge(storage: str, rounds_sum: bool) -> Kernel:
    """The judge of norms."""
    return Kernel(kernels.make_norm_judge, (storage, rounds_sum), NORM)


def pairs_grid(part: Slice, *, interleaved: bool) -> tuple[int, int]:
    """The grid of a maker of inputs."""
    per_block = kernels.THREADS * (2 if interleaved else kernels.PER_WORD)
    return -(-part.columns // per_block), part.rows


def judge_grid(rows: int, columns: int) -> tuple[int, int]:
    """The grid of a judge; rows are a multiple of a block's."""
    return -(-columns // (kernels.THREADS * kernels.PER_WORD)), rows // kernels.ROWS


def new_tally(rows: int, columns: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """counts and worst of as many blocks as a slice has."""
    across, down = judge_grid(rows, columns)
    counts = torch.zeros(across * down * slots.SLOTS, dtype=torch.int64, device=device)
    return counts, torch.zeros(across * down, dtype=torch.int64, device=device)


@cache
def _emulated(make: Callable[..., Any], arguments: tuple[Any, ...]) -> EmulatedKernel:
    return EmulatedKernel(make(*arguments), accepted=True)


def compile_to_ptx(kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX of a kernel."""
    from numba import cuda

    function = kernel.make(*kernel.arguments)
    return cuda.compile_ptx(function, kernel.signature, cc=cc, launch_bounds=(kernels.THREADS, BLOCKS))[0]  # type: ignore


def machine_code(kernel: Kernel, cc: tuple[int, int]) -> Compiled:
    """Machine code of a kernel, from the disk cache where it has it."""
    return cached_code(f"{kernel.make.__name__}{kernel.arguments} {_sources()}", cc, lambda: compile_to_ptx(kernel, cc))


@cache
def _sources() -> str:
    """The digest of this room's sources, which the kernels and their numbers are in."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@cache
def _loaded(kernel: Kernel, device: torch.device) -> tuple[Any, Any]:
    """(module, kernel) of cuda.core; a kernel needs its module."""
    from cuda.core import Device, ObjectCode

    Device(device.index).set_current()
    code = machine_code(kernel, torch.cuda.get_device_capability(device))
    module = ObjectCode.from_cubin(code.cubin)
    return module, module.get_kernel(code.entry)


@cache
def _stream(handle: int) -> Any:
    from cuda.core import Stream

    return Stream.from_handle(handle)


@cache
def _config(grid: tuple[int, int]) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=grid, block=kernels.THREADS)


def _launch_on_gpu(kernel: Kernel, device: torch.device, grid: tuple[int, int], arguments: tuple[Any, ...]) -> None:
    from cuda.core import launch

    given: list[int | float] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):  # numba's parameters of an array
            size = argument.element_size()
            given += [0, 0, argument.numel(), size, argument.data_ptr(), argument.numel(), size]
        else:
            given.append(argument)
    stream = _stream(torch.cuda.current_stream(device).cuda_stream)
    launch(stream, _config(grid), _loaded(kernel, device)[1], *given)
