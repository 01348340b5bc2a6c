"""Which kernel is built where a GPU holds no cluster of the size that tuning chose. With a made-up driver."""

import numpy as np
import pytest

from numba_kernels import tuning
from numba_kernels.kernels.config import NormOperation
from numba_kernels.plans import NormPlan
from numba_kernels.runtime import launch


@pytest.mark.parametrize("rows", [1, 4096])
@pytest.mark.parametrize("width", [24576, 65536, 100003, 262144])
@pytest.mark.parametrize("holds", [1, 2, 4, 8, 16])
def test_the_largest_cluster_that_fits_is_taken(width, rows, holds, monkeypatch):
    asked = []

    def resident_grid(device, function, config, rows, shared):
        asked.append(config.cluster)
        return (config.cluster if config.cluster <= holds else 0, 1, 1)

    target = tuning.Target("sm_90", 227 * 1024, 132, clusters=16, pdl=True, bulk_prefetch=True)
    monkeypatch.setattr(launch, "load", lambda device, kernel: 0)
    monkeypatch.setattr(launch, "target", lambda device: target)
    monkeypatch.setattr(launch, "device_count", lambda: 1)
    monkeypatch.setattr(launch, "resident_grid", resident_grid)
    monkeypatch.setattr(launch.launcher, "make_record", lambda *_: np.zeros(1, np.int64))
    operation = NormOperation(True, "bf16", "bf16", False, False, 0.0)
    plan = NormPlan(operation, rows, width, width, width, width, 0x358637BD)
    built = launch.Prepared(plan, 0, True)._build((0, 0, 0, 0), target)
    assert asked == sorted(asked, reverse=True)
    assert len(asked) <= 4
    assert all(cluster > holds for cluster in asked[:-1])
    assert isinstance(built, launch._DrawingVariant) == (bool(asked) and asked[-1] <= holds)
