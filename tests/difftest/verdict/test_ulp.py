"""ULP distance against exact reasoning: ranks among all values of a 16-bit dtype, rationals and neighbours for fp32."""

import itertools
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from difftest.verdict import ulp
from reference.formats import FORMATS

SIXTEEN = [torch.float16, torch.bfloat16]


def tensor(pattern, dtype):
    """A one-element tensor of a bit pattern."""
    if dtype == torch.float32:
        return torch.from_numpy(np.array([pattern], np.uint32).view(np.float32))
    return torch.from_numpy(np.array([pattern], np.uint16).view(np.int16)).view(dtype)


def number(distance):
    return int(distance.ulp[0])


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_distance_from_zero_is_the_rank_among_all_values(dtype):
    """All 65 536 patterns: sort the finite values exactly (float64 holds them), and count the steps from 0."""
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    finite = every[every.isfinite()]
    values = sorted(set(finite.double().tolist()))
    rank = {value: place for place, value in enumerate(values)}
    found = ulp.distance(finite, torch.zeros_like(finite)).ulp.tolist()
    assert found == [rank[value] - rank[0.0] for value in finite.double().tolist()]


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.sampled_from(SIXTEEN))
def test_distance_is_antisymmetric_and_adds_up_through_zero(a, b, dtype):
    x, y, zero = tensor(a, dtype), tensor(b, dtype), tensor(0, dtype)
    if not (x.isfinite() and y.isfinite()):
        return
    assert number(ulp.distance(x, y)) == -number(ulp.distance(y, x))
    assert number(ulp.distance(x, y)) == number(ulp.distance(x, zero)) - number(ulp.distance(y, zero))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-1000, 1000))
def test_fp32_distance_counts_the_neighbours_between(value, steps):
    """Walks the bit patterns: away from zero they count up, and the two zeros are one place."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    place = -(bits & 0x7FFFFFFF) if bits >> 31 else bits
    other = place + steps
    if abs(other) >= 0x7F800000:
        return
    moved = tensor((abs(other) | 0x80000000) if other < 0 else other, torch.float32)
    assert number(ulp.distance(moved, torch.tensor([value]))) == steps


def test_one_step_of_numpy_nextafter_is_distance_one():
    values = np.array([0.0, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 65504, 3e38], np.float32)
    for target in (np.inf, -np.inf):
        up = torch.from_numpy(np.nextafter(values, np.float32(target)))
        assert ulp.distance(up, torch.from_numpy(values)).ulp.abs().tolist() == [1] * len(values)


@pytest.mark.parametrize("dtype", [d.torch for d in FORMATS.values()])
def test_both_zeros_are_one_value(dtype):
    found = ulp.distance(torch.tensor([0.0, -0.0], dtype=dtype), torch.tensor([-0.0, 0.0], dtype=dtype))
    assert found.ulp.tolist() == [0, 0]
    assert ulp.class_counts(found) == {}


def test_smallest_fp16_subnormals_of_two_signs_are_two_apart():
    tiny = torch.tensor([2.0**-24], dtype=torch.float16)
    assert number(ulp.distance(tiny, -tiny)) == 2


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float16, 0x7BFF), (torch.bfloat16, 0x7F7F), (torch.float32, 0x7F7FFFFF)])
def test_the_widest_distance_does_not_wrap(dtype, steps):
    largest = torch.tensor([torch.finfo(dtype).max], dtype=dtype)
    assert number(ulp.distance(largest, -largest)) == 2 * steps
    assert number(ulp.distance(-largest, largest)) == -2 * steps


@pytest.mark.parametrize("dtype", [d.torch for d in FORMATS.values()])
def test_every_pair_of_classes_is_a_distance_or_one_class_mismatch(dtype):
    nan, inf = float("nan"), float("inf")
    expected = {
        (nan, 1.0): ulp.NAN_FOR_NUMBER,
        (nan, inf): ulp.NAN_FOR_NUMBER,
        (1.0, nan): ulp.NUMBER_FOR_NAN,
        (-inf, nan): ulp.NUMBER_FOR_NAN,
        (inf, 1.0): ulp.INF_FOR_FINITE,
        (1.0, inf): ulp.FINITE_FOR_INF,
        (inf, -inf): ulp.WRONG_INF,
        (nan, nan): None,
        (inf, inf): None,
        (-inf, -inf): None,
        (1.0, 1.0): None,
    }
    for (actual, right), kind in expected.items():
        found = ulp.distance(torch.tensor([actual], dtype=dtype), torch.tensor([right], dtype=dtype))
        assert ulp.class_counts(found) == ({kind: 1} if kind else {})
        assert ulp.histogram(found) == ({} if kind else {"0": 1})


def test_nans_of_two_payloads_are_one_value():
    found = ulp.distance(tensor(0x7E01, torch.float16), tensor(0xFE77, torch.float16))
    assert ulp.histogram(found) == {"0": 1}


def test_the_largest_finite_value_beside_infinity_is_a_class_mismatch_and_not_one_ulp():
    found = ulp.distance(torch.tensor([65504.0]).half(), torch.tensor([float("inf")]).half())
    assert ulp.class_counts(found) == {ulp.FINITE_FOR_INF: 1}


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)), max_size=50), st.sampled_from(SIXTEEN))
def test_histogram_and_classes_count_every_element_once(pairs, dtype):
    a, b = (
        torch.tensor(side, dtype=torch.int32).to(torch.int16).view(dtype)
        for side in ([p[0] for p in pairs], [p[1] for p in pairs])
    )
    found = ulp.distance(a, b)
    assert sum(ulp.histogram(found).values()) + sum(ulp.class_counts(found).values()) == len(pairs)


def test_histogram_keys_are_signed_distances_in_order():
    ones = torch.ones(4, dtype=torch.bfloat16)
    steps = torch.tensor([0x3F80, 0x3F82, 0x3F7F, 0x3F82]).to(torch.int16).view(torch.bfloat16)
    assert list(ulp.histogram(ulp.distance(steps, ones)).items()) == [("-1", 1), ("0", 1), ("2", 2)]


@pytest.mark.parametrize(("a", "b"), list(itertools.permutations([torch.float16, torch.bfloat16, torch.float32], 2)))
def test_two_dtypes_have_no_distance(a, b):
    with pytest.raises(TypeError, match="one dtype"):
        ulp.distance(torch.ones(1, dtype=a), torch.ones(1, dtype=b))


def test_two_shapes_have_no_distance():
    with pytest.raises(ValueError, match="one shape"):
        ulp.distance(torch.ones(1), torch.ones(2))


def test_no_elements_have_no_histogram():
    assert ulp.histogram(ulp.distance(torch.ones(0), torch.ones(0))) == {}
