"""Which pairs a share holds."""

import pytest
import torch

from difftest.exhaustive import domain
from reference.formats import FORMATS


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("count", [1024, 4096, 65536])
def test_every_stratum_gives_as_many_patterns_its_ends_among_them(dtype, count):
    storage = FORMATS[dtype]
    found = domain.patterns(storage, count, seed=0)
    assert len(found.unique()) == len(found) == count
    of = found >> storage.fraction_bits
    assert of.bincount().tolist() == [count // domain.strata(storage)] * domain.strata(storage)
    firsts = torch.arange(domain.strata(storage)) << storage.fraction_bits
    assert torch.isin(firsts, found).all()
    assert torch.isin(firsts + (1 << storage.fraction_bits) - 1, found).all()


@pytest.mark.parametrize(("share", "count"), [(1e-9, 1024), (2.0**-12, 1024), (2.0**-11, 2048), (0.25, 32768), (1.0, 65536)])
def test_a_share_is_reached_and_not_passed_by_more_than_four_times(share, count):
    assert domain.axis_of(share) == count


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_slices_hold_every_pair_once(on_gpu):
    whole = domain.domain(FORMATS["bf16"], 1.0 if on_gpu else 2.0**-12, 0, on_gpu=on_gpu)
    parts = list(whole.slices())
    assert sum(part.pairs for part in parts) == whole.pairs
    assert whole.whole == on_gpu
    assert len({(part.row, part.column) for part in parts}) == len(parts)
    assert {part.row for part in parts} == set(range(0, len(whole.firsts), whole.rows))
    assert {part.column for part in parts} == set(range(0, len(whole.seconds), whole.width))
