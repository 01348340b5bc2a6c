"""The block that says which kernel a call gets at some widths."""

from __future__ import annotations

from pathlib import Path

from difftest.pages.markdown import table
from numba_kernels import tuning

WIDTHS = (3, 111, 128, 1024, 4096, 16384, 33333, 65536, 131072, 262144, 1048576)
ROWS = 4096
H200 = tuning.Target("sm_90", shared_bytes=232448, processors=132, clusters=16, pdl=True, bulk_prefetch=True)


def forms(page: Path) -> str:
    """The kernel that the add-norms get: bf16, contiguous and aligned, on an H200."""
    rows = []
    for width in WIDTHS:
        tree = tuning.row_tree(width, 2)
        spec = tuning.norm_spec(
            width,
            ROWS,
            H200,
            adds_residual=True,
            storage="bf16",
            weight="bf16",
            access=tuning.access_bytes(tree.leaf, 2),
            weight_access=tuning.access_bytes(tree.leaf, 2),
            pdl=True,
        )
        where = {"memory": "read twice", "shared": "shared memory"}.get(spec.row_in, spec.row_in)
        share = f"{spec.rows} rows a block" if spec.rows > 1 else f"{spec.cluster} block{'s' if spec.cluster > 1 else ''} a row"
        tree_size = f"{tree.leaf} x {tree.chain} x 32 x {tree.segments}"
        rows.append((f"{width:,}", tree_size, where, share, f"{spec.threads}", f"{spec.access}"))
    heads = ("width", "leaf x chain x lanes x segments", "the row waits in", "share", "threads a block", "bytes an access")
    return table(heads, rows)
