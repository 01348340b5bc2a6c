"""What a kernel computes (an operation) and how (a configuration). A kernel is compiled for one of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..formats import FORMATS

TILE_COUNTERS = 1 << 14  # of each persistent kernel: one for each stream and each captured launch (see runtime/counters.py)


@dataclass(frozen=True, slots=True)
class NormOperation:
    """``h = x (+ residual); y = h / sqrt(mean(h²) + eps) * (weight + weight_bias)``, and where it rounds."""

    adds_residual: bool
    storage: str  # of x, residual and output: "bf16", "fp16", "fp32"
    weight: str  # of the weight: the same, or "fp32"
    rounds_sum: bool  # R1: normalise the stored sum
    rounds_norm: bool  # W1: round before the weight
    weight_bias: float | None  # added to the weight in fp32: 1.0 for Gemma; None: the launch says (one kernel for both)


@dataclass(frozen=True, slots=True)
class NormConfig:
    """How a norm kernel works. Sizes in elements, accesses in bytes; for a warp tile see tree.py."""

    vector: int  # elements that a thread handles together: 16 bytes where the width allows
    vectors_per_lane: int  # of one warp tile
    tiles_per_warp: int  # side by side in registers
    threads_per_row: int  # in one block: whole warps, or a power of two below 32 where several rows share a warp
    access: int  # bytes of one access to x, residual and output
    weight_access: int
    row_in: str = "registers"  # where the row waits for its sum: "registers", "shared", "memory" (it is read again)
    rows_per_block: int = 1  # side by side; 1 where several warps share a row
    cluster: int = 1  # blocks that share a row
    persistent: bool = False  # as many clusters as the GPU holds, each taking one row after another from a counter
    blocks_per_processor: int = 1  # that fit side by side, at least: bounds a thread's registers
    exact: bool = False  # every thread's vectors lie inside the row, and every block's rows inside the launch
    fixed_tree: bool = True  # False, on the ladder only: the sum's order depends on the number of threads
    early_weights: int = 0  # how many of a thread's vectors have their weight loaded before the sum is known
    pdl: bool = False  # programmatic dependent launch
    release: str = (
        "end"  # when the next kernel may start: "start", when the row is "loaded", "end"; or by how many "rows" there are
    )
    held_back: tuple[int, int] = (0, 0)  # so many, from and below: when the row is loaded; fewer or more: at the start
    prefetch_first: bool = False  # prefetch weight and residual of the first rows while waiting for the predecessor
    first_rows: int = 0  # the first rows, whose blocks start together (0: all are): not prefetched by others
    prefetch_ahead: int = 0  # prefetch the row this many rows on; 0: none

    def decided(self, rows: int) -> NormConfig:
        """The configuration that does always what this one does with so many rows."""
        if self.release != "rows":
            return self
        least, most = self.held_back
        return replace(self, release="loaded" if least <= rows < most else "start", held_back=(0, 0))

    @property
    def in_a_warp(self) -> bool:
        """Whether a row is one warp's, or a part of one's."""
        return self.row_in == "registers" and self.cluster == 1 and self.threads_per_row <= 32

    @property
    def warps(self) -> int:
        """That share a row, in one block."""
        return max(1, self.threads_per_row // 32)

    @property
    def lanes(self) -> int:
        """Of one warp that share a row."""
        return min(32, self.threads_per_row)

    @property
    def vectors_per_thread(self) -> int:
        """That a thread has in registers."""
        return self.tiles_per_warp * self.vectors_per_lane

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.threads_per_row * self.rows_per_block

    @property
    def has_dynamic_shared(self) -> bool:
        """Whether a launch says how much shared memory a block has."""
        return self.row_in == "shared" or self.cluster > 1

    def grid(self, rows: int, width: int) -> tuple[int, int, int]:
        """Blocks of a launch, before those of a persistent kernel are limited to what the GPU holds."""
        return (-(-rows // self.rows_per_block) * self.cluster, 1, 1)

    def dynamic_shared_bytes(self, operation: Operation, width: int) -> int:
        """What a row kept in shared memory takes, in whole rounds of vectors, or the weight, where a block has row after row."""
        round_ = self.vectors_per_thread * self.threads_per_row * self.vector
        if self.cluster > 1:
            assert isinstance(operation, NormOperation)
            return FORMATS[operation.weight].itemsize * round_
        return 4 * round_ * -(-width // round_) if self.row_in == "shared" else 0


@dataclass(frozen=True, slots=True)
class GatedOperation:
    """``out = act(gate) * up`` for one of the activations in activations.py."""

    activation: str
    storage: str  # of input and output: "bf16", "fp16", "fp32"
    rounding: str = "S0"  # S0: once; S1: act(gate) too, before the multiply; S2: after every operation
    interleaved: bool = False  # gate and up alternate in a row: columns 0, 2, 4, … and 1, 3, 5, …; else they are its two halves


@dataclass(frozen=True, slots=True)
class GatedConfig:
    """How a gated kernel shares its work out. Sizes in elements of the output, ``access`` in bytes."""

    vector: int  # elements a thread handles together
    access: int  # of one load or store
    lanes: int  # threads side by side on one row, a power of two
    rows: int  # that a block works on side by side
    vectors: int  # of a lane, ``lanes`` vectors apart
    exact: bool  # the column blocks cover the row without remainder, and the row blocks the rows
    pdl: bool = False  # started by programmatic dependent launch

    cluster: ClassVar[int] = 1
    persistent: ClassVar[bool] = False
    blocks_per_processor: ClassVar[int] = 1
    has_dynamic_shared: ClassVar[bool] = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.rows

    def grid(self, rows: int, width: int) -> tuple[int, int, int]:
        """(column blocks, row blocks, 1) for outputs of ``width``; rows beyond the grid's limit are taken in a loop."""
        vectors = width // self.vector
        return (-(-vectors // (self.lanes * self.vectors)), min(65535, -(-rows // self.rows)), 1)

    def dynamic_shared_bytes(self, operation: Operation, width: int) -> int:
        """None is needed."""
        return 0


@dataclass(frozen=True, slots=True)
class TextbookConfig:
    """The textbook kernels' one knob: threads of a block, a multiple of 32, 1024 at most. This one is for norms."""

    threads: int = 256

    cluster: ClassVar[int] = 1
    persistent: ClassVar[bool] = False
    blocks_per_processor: ClassVar[int] = 1
    has_dynamic_shared: ClassVar[bool] = True
    pdl: ClassVar[bool] = False

    def grid(self, rows: int, width: int) -> tuple[int, int, int]:
        """A block a row."""
        return (rows, 1, 1)

    def dynamic_shared_bytes(self, operation: Operation, width: int) -> int:
        """The row in fp32."""
        return 4 * width


@dataclass(frozen=True, slots=True)
class TextbookGatedConfig(TextbookConfig):
    """The same for the gated activations."""

    has_dynamic_shared: ClassVar[bool] = False

    def grid(self, rows: int, width: int) -> tuple[int, int, int]:
        """(rows, column blocks, 1); columns beyond the grid's limit are taken in a loop."""
        return (rows, min(65535, -(-width // self.threads)), 1)

    def dynamic_shared_bytes(self, operation: Operation, width: int) -> int:
        """None is needed."""
        return 0


Operation = NormOperation | GatedOperation
Config = NormConfig | GatedConfig | TextbookConfig


@dataclass(frozen=True, slots=True)
class Kernel:
    """What is compiled: an operation and how it is done."""

    operation: Operation
    config: Config

    def shape(self, rows: int, width: int) -> tuple[tuple[int, int, int], int]:
        """The grid and the dynamic shared memory in bytes of a launch for rows of ``width``."""
        return self.config.grid(rows, width), self.config.dynamic_shared_bytes(self.operation, width)
