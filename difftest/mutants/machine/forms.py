"""The compiled forms that mutants of the kernels are tried in: operator, dtype, contract, and how the kernel is configured.

The emulator runs forms that its own choice never makes too (a warp's row, clusters, rows that wait in shared memory), since
a mutant of their lines would otherwise never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from difftest.providers.numba import NumbaProvider
from difftest.providers.textbook import TextbookProvider
from reference.providers import Provider

MOST_BLOCKS_DOWN = 2  # of a launch's second axis
CLUSTERS = 2  # of a persistent kernel: each takes several rows, and they take them in turn


@dataclass(frozen=True, slots=True)
class Form:
    """A form, by its `name`. `widths`: of the cases that are tried first, all of one compiled kernel.

    `textbook`: the textbook kernel. `options`: fields of the kernel's configuration in place of those that the emulator chooses.
    `bound`: the weight's bias is a constant of the kernel, as on a GPU, not an argument.
    """

    op: str
    dtype: str
    code: str = ""
    widths: tuple[int, ...] = (333,)
    textbook: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    bound: bool = False
    weight_dtype: str | None = None

    @property
    def name(self) -> str:
        """What tells it from the others, in words."""
        words = [self.op, self.dtype, self.code, "textbook" if self.textbook else "", "bound" if self.bound else ""]
        words += [f"{self.weight_dtype} weight" if self.weight_dtype else "", f"width {self.widths[0]}"]
        return " ".join(word for word in (*words, *(f"{key}={value}" for key, value in self.options)) if word)

    @property
    def usual(self) -> bool:
        """Whether calls of any width run in it: the emulator's own choice."""
        return not self.options and not self.bound

    def provider(self) -> Provider:
        """The operator by these kernels."""
        return TextbookProvider() if self.textbook else NumbaProvider()

    def kernel(self, plan: Any) -> Any:
        """A plan's kernel in this form."""
        from numba_kernels import tuning
        from numba_kernels.kernels.config import Kernel

        kernel = plan.kernel(tuning.EMULATOR, (0,) * 4, False)
        operation = plan.operation if self.bound else kernel.operation
        return Kernel(operation, replace(kernel.config, **dict(self.options)))

    def grid(self, kernel: Any, rows: int, width: int) -> tuple[int, int, int]:
        """The blocks of a launch: so few that a kernel which goes round its rows or columns again does."""
        x, y, z = kernel.config.grid(rows, width)
        if kernel.config.persistent:
            x = min(rows, CLUSTERS) * kernel.config.cluster
        return x, min(y, MOST_BLOCKS_DOWN), z


def _options(**options: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items())


# Names of operators are data here: which of them shows a line of the kernels at the least cost.
_ADD, _PLAIN, _SILU, _SWIGLU = "fused_add_rmsnorm", "rmsnorm", "silu_and_mul", "swigluoai_and_mul"
_GELU, _GELU_TANH = "gelu_and_mul", "gelu_tanh_and_mul"

TEXTBOOK_NORMS = (
    Form(_ADD, "bf16", "R0W0", textbook=True),
    Form(_ADD, "fp16", "R1W1", textbook=True),
    Form(_PLAIN, "fp32", "W0", textbook=True),
    Form("gemma_rmsnorm", "bf16", "W1", textbook=True),
    Form(_ADD, "bf16", "R0W0", textbook=True, weight_dtype="fp32"),
)
TEXTBOOK_GATED = (
    Form(_SILU, "bf16", "S0", (777,), textbook=True),
    Form(_SILU, "fp16", "S1", (777,), textbook=True),
    Form(_SWIGLU, "bf16", "S0", (777,), textbook=True),
    Form(_SWIGLU, "fp16", "S2", (777,), textbook=True),
    Form(_SILU, "fp32", "S0", (777,), textbook=True),
)
ACTIVATIONS = (
    *TEXTBOOK_GATED,
    *(Form(op, dtype, "S0", (777,), textbook=True) for op in (_GELU_TANH, _GELU) for dtype in ("bf16", "fp32")),
    Form(_SWIGLU, "fp32", "S0", (777,), textbook=True),
    Form(_SWIGLU, "bf16", "S1", (777,), textbook=True),
)
GATED = (
    Form(_SILU, "bf16", "S0"),
    Form(_SILU, "bf16", "S0", (1000,), options=_options(lanes=8, rows=4, vectors=2)),  # a thread has two vectors of 8 elements
    Form(_SWIGLU, "bf16", "S2"),
    Form(_SILU, "bf16", "S0", (256,), options=_options(exact=True)),
    Form(_SILU, "fp16", "S1", (1000,)),
    Form(_SWIGLU, "bf16", "S0", (1000,)),
)
# One of each kind first, since a mutant that none of the first few finds is given up.
BLOCK = (
    Form(_ADD, "bf16", "R0W0"),  # four warps, the last of which has nothing of the row
    # 12 tiles, all that three warps have: their number is no power of two
    Form(_ADD, "bf16", "R0W0", (3072,), options=_options(threads_per_row=96)),
    Form(_PLAIN, "bf16", "W0", (512,), options=_options(threads_per_row=64, tiles_per_warp=1)),  # 2 tiles, in all
    Form(_PLAIN, "bf16", "W0", options=_options(threads_per_row=96, tiles_per_warp=2, vectors_per_lane=2)),
    Form(_PLAIN, "fp32", "W0"),
    Form(_ADD, "bf16", "R1W1", (1000,)),
    Form(_ADD, "bf16", "R0W0", options=_options(threads_per_row=192, tiles_per_warp=2, early_weights=0)),
    Form(_ADD, "bf16", "R0W0", (1024,), options=_options(threads_per_row=64, tiles_per_warp=2, exact=True)),
    Form("gemma_rmsnorm", "bf16", "W0", bound=True),
    Form(_PLAIN, "bf16", "W1"),
    Form(_ADD, "fp16", "R1W0", (1000,), weight_dtype="fp32"),
    # Of the 16 places for tiles' sums 11 are added, or 4: a sum that lands in another is lost.
    Form(_PLAIN, "bf16", "W0", (333, 111), options=_options(threads_per_row=64, tiles_per_warp=8, early_weights=1)),
    Form(_PLAIN, "bf16", "W0", options=_options(threads_per_row=352, tiles_per_warp=1)),
    Form(_PLAIN, "bf16", "W1", (1000,), bound=True),
    Form(_PLAIN, "bf16", "W0", bound=True),
    Form(_PLAIN, "fp32", "W0", bound=True),
    Form(_PLAIN, "bf16", "W0", options=_options(fixed_tree=False)),
)
WARP = (
    Form(_ADD, "bf16", "R0W0", (7,), options=_options(threads_per_row=8, rows_per_block=4, tiles_per_warp=1)),
    Form(_ADD, "bf16", "R0W0", (480,), options=_options(threads_per_row=32, rows_per_block=2, tiles_per_warp=2)),
    Form(_PLAIN, "bf16", "W0", (480,), options=_options(threads_per_row=32, rows_per_block=2, tiles_per_warp=2)),  # x is not out
    Form(_ADD, "bf16", "R0W0", (111,)),
)
STREAMED = (  # one that adds by threads among the first five: a mutant that none of these finds is given up
    Form(_ADD, "bf16", "R0W0", options=_options(row_in="shared", threads_per_row=64, tiles_per_warp=2)),
    Form(_ADD, "bf16", "R0W0", (1024,), options=_options(row_in="shared", threads_per_row=32, tiles_per_warp=2, exact=True)),
    Form(_ADD, "bf16", "R0W0", options=_options(row_in="memory", threads_per_row=64, tiles_per_warp=2)),
    Form(_PLAIN, "bf16", "W1", (1000,), options=_options(row_in="shared", threads_per_row=64, tiles_per_warp=1)),
    Form(_ADD, "bf16", "R0W0", options=_options(row_in="shared", threads_per_row=64, tiles_per_warp=2, fixed_tree=False)),
    Form(_PLAIN, "bf16", "W0", options=_options(row_in="memory", threads_per_row=64, tiles_per_warp=1)),
)
# Several vectors a thread, each of two parts, are kept of the weight.
KEPT = Form(
    _ADD,
    "bf16",
    "R0W0",
    (1000,),
    weight_dtype="fp32",
    options=_options(cluster=2, threads_per_row=32, tiles_per_warp=2, persistent=True),
)
CLUSTER = (
    Form(_PLAIN, "bf16", "W0", (1002,), options=_options(cluster=2, threads_per_row=96, tiles_per_warp=4)),  # 16 of 24 tiles
    Form(_ADD, "bf16", "R0W0", options=_options(cluster=2, threads_per_row=64, tiles_per_warp=4)),
    Form(_ADD, "bf16", "R0W0", (1000,), options=_options(cluster=2, threads_per_row=64, tiles_per_warp=1, persistent=True)),
    Form(_PLAIN, "bf16", "W0", weight_dtype="fp32", options=_options(cluster=4, threads_per_row=32, tiles_per_warp=4)),
    Form(_PLAIN, "bf16", "W0", (1024,), options=_options(cluster=2, threads_per_row=64, tiles_per_warp=1, exact=True)),
    KEPT,
)

# The forms in which a file's mutants are tried. Of a function that is part of few forms, those first.
BY_FILE: Mapping[str, tuple[Form, ...]] = {
    "textbook": (*TEXTBOOK_NORMS, *TEXTBOOK_GATED),
    "activations": ACTIVATIONS,
    "gated": GATED,
    "rounding": BLOCK,
    "reduction": (*BLOCK, *WARP, *STREAMED, *CLUSTER),
    "row": (*BLOCK, *WARP, *STREAMED, *CLUSTER),
    "norms": (*BLOCK, *WARP, *CLUSTER),
    "streamed": STREAMED,
}
OF_FUNCTIONS: Mapping[str, tuple[Form, ...]] = {
    **dict.fromkeys(("make_cluster_kernel", "make_take_row", "make_send_sums", "make_sum_in_cluster"), CLUSTER),
    **dict.fromkeys(("make_keep_weight", "make_keep_weights", "make_scale_row_by_kept"), (KEPT, *CLUSTER[:-1])),
    "make_sum_tiles": (KEPT, *BLOCK[:3]),  # of two places for sums the second, too
    "make_store_sum": (BLOCK[7], BLOCK[0]),  # exact: nothing but the loop's end keeps a store inside
    "make_scale_row": (BLOCK[11], BLOCK[6]),  # some or none of the weight is there early
    **dict.fromkeys(("make_warp_kernel", "make_sum_in_warp"), WARP),
}


def forms_of(stem: str, function: str) -> tuple[Form, ...]:
    """In which a mutant of a file is tried; `function`: the outermost that it is in."""
    everything = BY_FILE[stem]
    first = tuple(form for form in OF_FUNCTIONS.get(function, ()) if form in everything)
    return (*first, *(form for form in everything if form not in first))
