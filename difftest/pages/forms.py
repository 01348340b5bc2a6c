"""The block that says which kernel a call gets at some widths."""

from __future__ import annotations

from pathlib import Path

from difftest.report.table import Table, markdown
from numba_kernels import tuning
from numba_kernels.kernels.config import NormOperation
from numba_kernels.kernels.tree import row_tree

WIDTHS = (3, 111, 128, 1024, 4096, 16384, 33333, 65536, 131072, 262144, 1048576)
ROWS = 4096
H200 = tuning.Target("sm_90", shared_bytes=232448, processors=132, clusters=16, pdl=True, bulk_prefetch=True)


def forms(page: Path) -> str:
    """The kernel that the add-norms get: bf16, contiguous and aligned, on an H200."""
    operation = NormOperation(True, "bf16", "bf16", rounds_sum=False, rounds_norm=False, weight_bias=0.0)
    rows = []
    for width in WIDTHS:
        tree = row_tree(width, 2)
        access = tuning.access_bytes(tree.vector, 2)
        config = tuning.norm_config(operation, width, ROWS, H200, access=access, weight_access=access, pdl=True)
        where = {"memory": "read twice", "shared": "shared memory"}.get(config.row_in, config.row_in)
        blocks = f"{config.cluster} block{'s' if config.cluster > 1 else ''} a row"
        share = f"{config.rows_per_block} rows a block" if config.rows_per_block > 1 else blocks
        shape = f"{tree.vector} x {tree.vectors_per_lane} x 32 x {tree.tiles}"
        rows.append((f"{width:,}", shape, where, share, f"{config.threads}", f"{config.access}"))
    tree_of = "vector x vectors a lane x lanes x warp tiles"
    heads = ("width", tree_of, "the row waits in", "share", "threads a block", "bytes an access")
    return markdown(Table("", heads, tuple(rows), names=4))
