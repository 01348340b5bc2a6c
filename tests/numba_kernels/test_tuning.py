"""The table of thresholds: whole, and quoted with what it rests on."""

from pathlib import Path

import pytest

from numba_kernels import tuning
from numba_kernels.kernels.config import NormOperation

TABLE = tuning.table()
UNMEASURED = ("streamed_warps", "few_rows_cluster_vectors", "gated_small_vectors")  # of which the unit says all


def test_every_threshold_that_tuning_reads_is_in_the_table_and_every_one_in_the_table_is_read():
    text = Path(tuning.__file__).read_text() + Path(tuning.__file__).with_name("kernels").joinpath("ladder.py").read_text()
    unread = [name for name in TABLE if f'threshold("{name}"' not in text]
    assert unread == []
    for name in TABLE:
        assert tuning.threshold(name) is not None


@pytest.mark.parametrize("name", TABLE)
def test_an_entry_says_its_unit_and_why_or_what_was_measured(name):
    entry = TABLE[name]
    assert set(entry) <= {"value", "unit", "why", "measured"}
    assert entry["unit"]
    assert (
        entry.get("why") or entry.get("measured") or name in ("streamed_warps", "few_rows_cluster_vectors", "gated_small_vectors")
    )
    for row in entry.get("measured", ()):
        assert set(row) == {"call", "us"}
        assert row["call"].split()[0] in ("fused_add_rmsnorm", "rmsnorm", "silu_and_mul")
        assert all(isinstance(us, int | float) and us > 0 for us in row["us"].values())


def test_a_target_without_clusters_or_prefetch_gets_neither():
    operation = NormOperation(True, "bf16", "bf16", False, False, 0.0)
    small = tuning.Target("another", shared_bytes=48 * 1024, processors=4)
    for width in (1, 111, 4096, 65536, 1 << 20):
        config = tuning.norm_config(operation, width, 128, small, access=2, weight_access=2)
        assert (config.cluster, config.pdl, config.prefetch_first, config.prefetch_ahead) == (1, False, False, 0)


@pytest.mark.parametrize("width", [4096, 5120, 7168])
def test_a_model_s_norm_has_three_kernels_over_all_numbers_of_rows(width):
    """Each is compiled once, so that serving code meets no fourth first call."""
    operation = NormOperation(True, "bf16", "bf16", False, False, 0.0)
    h200 = tuning.Target("sm_90", shared_bytes=227 * 1024, processors=132, clusters=16, pdl=True, bulk_prefetch=True)
    rows = [*range(1, 2100), *range(2100, 65536, 211), 65536]
    kernels = {tuning.norm_config(operation, width, n, h200, access=16, weight_access=16, pdl=True) for n in rows}
    assert len(kernels) == 3
