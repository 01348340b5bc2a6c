"""The order of the sum: what is measured from outside is what was written."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from difftest.identify.order import outline, regular
from difftest.identify.order.fingerprint import AT_ONCE, NO_TREE, TREE, UNSEEN, order
from difftest.identify.order.regular import Level
from difftest.identify.order.tree import Builder, Tree, shape_of
from difftest.providers.resolve import resolve
from reference.operators import OPERATORS

from . import sums

RMSNORM, ADD = OPERATORS["rmsnorm"], OPERATORS["fused_add_rmsnorm"]
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


def measured(function, width, dtype=FP32, op=RMSNORM, **more):
    return order(op, function, dtype, width, **more)


def provider(name, op=RMSNORM):
    return resolve(name).function(op.name)


# --- known orders --------------------------------------------------------------------------------------------------------

PAIRS = (1, 2, 4, 8, 16, 32, 64)
KNOWN = {
    sums.one_by_one: [Level(111, 1)],
    sums.neighbours_first: [Level(128, 1, PAIRS)],
    sums.lanes_then_butterfly: [Level(4, 32), Level(32, 1, (16, 8, 4, 2, 1))],
    sums.blocks_of_eight: [Level(8, 1), Level(14, 8)],
}


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16])
@pytest.mark.parametrize("total", KNOWN)
def test_a_known_order_is_found_level_by_level(total, dtype):
    found = measured(sums.norm(total), 111, dtype)
    assert found.state == TREE
    assert outline.levels(found.tree) == KNOWN[total]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_row_of_so_few_has_an_order_too(width):
    assert measured(sums.norm(sums.one_by_one), width).identity == _chain(width).identity


@pytest.mark.parametrize(("width", "dtype"), [(1024, FP32), (1024, BF16), pytest.param(4096, BF16, marks=pytest.mark.slow)])
def test_a_wide_row_takes_few_rows_where_its_order_repeats_itself(width, dtype):
    found = measured(sums.norm(sums.lanes_then_butterfly), width, dtype, checked=256)
    assert outline.levels(found.tree) == [Level(width // 32, 32), Level(32, 1, (16, 8, 4, 2, 1))]
    assert found.asked < 3 * width


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("mean", [sums.times_the_reciprocal, sums.ulps_off(2), sums.ulps_off(-2)])
def test_how_the_mean_is_rounded_hides_nothing(mean, dtype):
    for width in (3, 111):
        right = measured(sums.norm(sums.lanes_then_butterfly), width).identity
        assert measured(sums.norm(sums.lanes_then_butterfly, mean), width, dtype).identity == right


def test_a_sum_from_the_end_is_told_from_one_from_the_beginning():
    found = measured(sums.norm(sums.backwards), 40)
    assert found.lines == ["40 neighbouring elements, first to last", "all of it counted from the last element"]
    assert found.identity != _chain(40).identity


def test_a_chain_of_fused_multiply_adds_is_a_sequence():
    assert measured(sums.fused_multiply_add, 40).identity == _chain(40).identity


def test_a_compensated_sum_is_no_tree():
    assert measured(sums.norm(sums.compensated), 3).state == NO_TREE
    assert measured(sums.norm(sums.compensated), 40).state == NO_TREE


@pytest.mark.parametrize(("width", "what"), [(3, "more than fp32"), (111, "fp64")])
def test_a_sum_in_fp64_loses_nothing(width, what):
    found = measured(sums.norm(sums.in_fp64), width)
    assert found.state == AT_ONCE
    assert what in found.summary


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_fp64_up_to_the_root_is_told_too(dtype):
    found = measured(sums.all_in_fp64, 111, dtype)
    assert (found.state, found.why.endswith("more than fp32")) == (AT_ONCE, True)


@st.composite
def trees(draw):
    """Any tree of 1 to 24 elements; in some, sums of several parts at once."""
    leaves = draw(st.integers(1, 24))
    most = draw(st.sampled_from((2, 2, 5)))
    builder, parts = Builder(leaves), list(range(leaves))
    while len(parts) > 1:
        some = [parts.pop(draw(st.integers(0, len(parts) - 1))) for _ in range(draw(st.integers(2, most))) if parts]
        parts.append(builder.join(*some))
    return builder.tree()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(), st.sampled_from((FP32, BF16, FP16)))
def test_any_tree_is_recovered(tree, dtype):
    found = measured(sums.by_tree(tree), tree.leaves, dtype)
    if len(tree.nodes) == 1 and len(tree.nodes[0]) > 2:
        assert found.state == AT_ONCE
    else:
        assert found.identity == tree.identity


# --- providers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [3, 111, *(pytest.param(width, marks=pytest.mark.slow) for width in (1, 2, 1024, 4096))])
@pytest.mark.parametrize(("dtype", "itemsize"), [(BF16, 2), pytest.param(FP32, 4, marks=pytest.mark.slow)])
def test_our_kernel_adds_as_it_declares(width, dtype, itemsize):
    found = measured(provider("numba", ADD), width, dtype, ADD, batches=(1, 16))
    assert found.identity == sums.our_tree(width, itemsize).identity
    assert found.batches == {1: "same", 16: "same"}


@pytest.mark.slow
def test_our_kernel_keeps_its_order_from_1_to_4096_rows():
    found = measured(provider("numba", ADD), 1024, BF16, ADD, batches=(1, 2, 31, 128, 1000, 4096))
    assert set(found.batches.values()) == {"same"}


def test_ours_eager_torch_and_a_sequence_are_three_orders():
    ours = sums.our_tree(111, 2).identity
    eager = measured(provider("torch-rmsnorm"), 111, BF16).identity
    plain = measured(provider("torch"), 111, FP32).identity
    assert len({ours, eager, _chain(111).identity}) == 3
    assert plain == eager  # both are torch's sum over the last axis


def test_the_order_is_the_same_in_every_dtype_that_shows_it():
    assert len({measured(provider("torch-rmsnorm"), 70, dtype).identity for dtype in (FP32, BF16, FP16)}) == 1


def test_a_measured_order_gives_the_bits_of_any_row():
    found = measured(provider("torch-rmsnorm"), 200)
    rows = torch.randn(64, 200, generator=torch.Generator().manual_seed(0)).square()
    mean = torch.from_numpy(found.tree.sums(rows.numpy().T)) / 200
    assert torch.equal(mean, rows.mean(-1))
    other = torch.from_numpy(_chain(200).sums(rows.numpy().T)) / 200
    assert not torch.equal(other, rows.mean(-1))


def test_an_order_that_depends_on_the_batch_is_said():
    alone, many = sums.norm(sums.one_by_one), sums.norm(sums.neighbours_first)
    found = measured(lambda input, weight, eps: (alone if len(input) == 1 else many)(input, weight, eps), 40, batches=(1, 16))
    assert found.batches[16] == "same"
    assert found.batches[1].endswith("40 in sequence")


# --- what can't be seen --------------------------------------------------------------------------------------------------


def positive_eps_only(input, weight, eps):
    if eps < 0:
        raise ValueError("eps is negative")
    return sums.norm(sums.one_by_one)(input, weight, eps)


def test_without_a_negative_eps_the_end_of_the_range_shows_the_order():
    found = measured(positive_eps_only, 40)
    assert (found.identity, found.by) == (_chain(40).identity, "overflow")


def test_what_can_not_be_seen_is_said_with_its_reason():
    found = measured(positive_eps_only, 40, FP16)
    assert found.state == UNSEEN
    assert "eps is negative" in found.why
    assert "16-bit" in found.why
    assert found.batches == {}


def test_an_eps_that_is_ignored_hides_the_order_of_16_bit_rows():
    ignores = lambda input, weight, eps: sums.norm(sums.one_by_one)(input, weight, 1e-6)  # noqa: E731
    assert measured(ignores, 40, BF16).state == UNSEEN
    assert measured(ignores, 40, FP32).identity == _chain(40).identity


def test_squares_in_half_precision_are_no_sum_in_fp32():
    def halves(input, weight, eps):
        return input * torch.rsqrt(input.square().mean(-1, keepdim=True) + eps) * weight

    assert measured(halves, 40, BF16).state in (UNSEEN, NO_TREE)


def test_an_order_that_does_not_repeat_itself_is_given_up_after_so_many_rows():
    random = np.random.default_rng(0)
    found = measured(sums.norm(lambda squares: sums.one_by_one(squares[:, random.permutation(300)])), 300, most=500)
    assert found.state in (UNSEEN, NO_TREE)


# --- the tree itself -----------------------------------------------------------------------------------------------------


def test_an_identity_does_not_depend_on_which_part_comes_first():
    assert Tree(3, ((0, 1), (3, 2))).identity == Tree(3, ((1, 0), (2, 3))).identity
    assert Tree(3, ((0, 1), (3, 2))).identity != Tree(3, ((0, 2), (3, 1))).identity != Tree(3, ((0, 1, 2),)).identity


def test_a_tree_out_of_its_levels_is_the_tree():
    tree = sums.our_tree(700, 2)
    path = [tree.elements(parts[0]) for parts in tree.path(0)]
    assert regular.tree(700, regular.steps(path, np.arange(700), 700)).identity == tree.identity


def test_a_part_has_the_shape_of_its_likes():
    tree = sums.our_tree(512, 4)
    (left,), (right,) = tree.path(0)[-1], tree.path(511)[-1]
    assert shape_of(tree, left).identity == shape_of(tree, right).identity


def test_several_parts_at_once_are_rounded_once():
    squares = np.array([[2.0**24], [1.0], [1.0]], np.float32)
    assert Tree(3, ((0, 1), (3, 2))).sums(squares) == 2.0**24
    assert Tree(3, ((0, 1, 2),)).sums(squares) == 2.0**24 + 2


def test_an_outline_says_what_is_added_to_element_0():
    tree = Tree(5, ((0, 3), (1, 2), (5, 6), (7, 4)))
    assert outline.summary(tree) == "no order that repeats itself: 4 additions, 3 deep"
    assert outline.lines(tree) == [
        "to element 0 are added, in this order:",
        "1 element: 3",
        "2 elements (2 in sequence): 1 to 2",
        "1 element: 4",
    ]


def _chain(width):
    builder, node = Builder(width), 0
    for element in range(1, width):
        node = builder.join(node, element)
    return builder.tree()
