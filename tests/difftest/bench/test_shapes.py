"""What is measured, how much of it fits a graph, and in which order."""

import pytest

from difftest.bench import shapes
from difftest.bench.shapes import set_bytes, timed
from difftest.errors import UsageError

from .made_up import FakeProvider


def test_small_points_fill_a_graph_and_large_ones_fill_the_pool():
    assert shapes.calls(timed("fused_add_rmsnorm", "bf16", 1, 4096), shapes.POOL_BYTES) == shapes.MOST_CALLS
    large = timed("fused_add_rmsnorm", "bf16", 16384, 4096)
    count = shapes.calls(large, shapes.POOL_BYTES)
    assert count * set_bytes(large) <= shapes.POOL_BYTES < (count + 1) * set_bytes(large)
    assert shapes.calls(timed("fused_add_rmsnorm", "bf16", 8192, 65536), shapes.POOL_BYTES) == 1


def test_every_default_point_keeps_a_set_of_its_own_for_each_call_within_memory():
    for point in shapes.cases():
        count = shapes.calls(point, shapes.POOL_BYTES)
        assert 1 <= count <= shapes.MOST_CALLS
        assert count == 1 or count * set_bytes(point) <= shapes.POOL_BYTES


def test_a_sets_bytes_are_its_inputs_and_outputs():
    stored = 128 * 4096 * 2
    assert set_bytes(timed("fused_add_rmsnorm", "bf16", 128, 4096)) == 4 * stored
    assert set_bytes(timed("rmsnorm", "fp16", 128, 4096)) == 2 * stored
    assert set_bytes(timed("silu_and_mul", "fp32", 128, 4096)) == 3 * 2 * stored


def test_the_pool_shrinks_with_free_memory():
    assert shapes.pool_bytes(140 * 2**30, 10) == shapes.POOL_BYTES
    assert shapes.pool_bytes(8 * 2**30, 10) == 8 * 2**30 // 24


def test_the_default_points_are_those_of_the_tables():
    found = shapes.cases()
    assert len(found) == len(set(found))
    assert timed("fused_add_rmsnorm", "bf16", 8192, 111) in found
    assert timed("fused_add_rmsnorm", "bf16", 512, 262144) in found
    assert timed("silu_and_mul", "bf16", 16, 14336) in found
    assert timed("rmsnorm", "bf16", 65536, 128) in found
    assert {p.dtype for p in found} == {"bf16", "fp16", "fp32"}
    assert len([p for p in found if p.dtype == "fp16"]) == 3


def test_named_dtypes_take_every_default_shape_and_named_shapes_every_operator():
    assert len(shapes.cases(["silu_and_mul"], ["fp16"])) == 5
    assert shapes.cases(["rmsnorm", "silu_and_mul"], [], [(2, 3)]) == [
        timed("rmsnorm", "bf16", 2, 3),
        timed("silu_and_mul", "bf16", 2, 3),
    ]
    assert shapes.cases(["gelu_and_mul"])[0].width == 14336


def test_shapes_are_read_without_repeats():
    assert shapes.parse("1x4096, 16x4096,1x4096") == [(1, 4096), (16, 4096)]


@pytest.mark.parametrize("text", ["12", "x", "1x", "x2", "1x2x3", "0x4", "4x0", "-1x4", "1X2", "", ","])
def test_other_shapes_are_one_line_that_says_how(text):
    with pytest.raises(UsageError, match="--shapes"):
        shapes.parse(text)


def test_everyone_has_one_turn_a_round_and_everyone_is_first_once():
    rounds = list(shapes.turns(["a", "b", "c"], 6))
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert [order[0] for order in rounds] == ["a", "b", "c", "a", "b", "c"]
    assert list(shapes.turns([], 2)) == [(), ()]


def test_the_smallest_point_of_each_operator_takes_the_hosts_time():
    found = shapes.smallest(shapes.cases())
    assert found["fused_add_rmsnorm"] == timed("fused_add_rmsnorm", "bf16", 1, 4096)
    assert found["silu_and_mul"] == timed("silu_and_mul", "bf16", 1, 14336)


def test_flashinfer_is_not_timed_beside_both_its_backends_unless_named():
    gated = ("silu_and_mul",)
    providers = [
        FakeProvider("flashinfer"),
        FakeProvider("flashinfer-cuda", lacks=gated),
        FakeProvider("flashinfer-cute", lacks=gated),
    ]
    assert [p.name for p in shapes.entrants("rmsnorm", providers, False)] == ["flashinfer-cuda", "flashinfer-cute"]
    assert next(p.name for p in shapes.entrants("silu_and_mul", providers, False)) == "flashinfer"
    assert len(shapes.entrants("rmsnorm", providers, True)) == 3
