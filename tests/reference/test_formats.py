"""The table of storage formats agrees with torch, and its bit views show single bits."""

import math

import pytest
import torch

from reference.formats import FORMATS, bits, hex_bits, of


@pytest.mark.parametrize("each", FORMATS.values(), ids=FORMATS)
def test_a_format_says_what_torch_says(each):
    limits = torch.finfo(each.torch)
    assert of(each.torch) is each
    assert each.itemsize == each.bits.itemsize == limits.bits // 8
    assert each.largest == limits.max
    assert 2.0**-each.fraction_bits == limits.eps
    assert 2.0**each.smallest_exponent == limits.tiny
    assert math.log2(limits.max + limits.max * limits.eps / 4) < -each.smallest_exponent + 2


@pytest.mark.parametrize("each", FORMATS.values(), ids=FORMATS)
def test_the_poison_is_a_quiet_nan_with_a_payload(each):
    poison = torch.tensor([each.poison], dtype=each.bits).view(each.torch)
    assert poison.isnan()
    assert each.poison >> (each.fraction_bits - 1) & 1
    assert hex_bits(poison) == f"{each.poison:#x}"
    assert bits(poison).item() == each.poison


def test_negative_numbers_have_bits_too():
    assert hex_bits(torch.tensor(-1.0, dtype=torch.bfloat16)) == "0xbf80"
    assert hex_bits(torch.tensor(0.0)) == "0x00000000"


def test_another_dtype_is_no_storage_format():
    with pytest.raises(TypeError, match="fp16, bf16, fp32"):
        of(torch.float64)
