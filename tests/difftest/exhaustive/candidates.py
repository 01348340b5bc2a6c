"""silu_and_mul as files have it: right, wrong for one pair, of another shape, interrupted, rounded before the multiply."""

from pathlib import Path

import torch

from reference.arithmetic import evaluate
from reference.contracts import contract

MARK = Path(__file__).with_name("interrupted")
CALLS = []


def silu_and_mul(input):
    return evaluate("silu_and_mul", {"input": input}, contract("silu_and_mul"))["output"]


def silu_and_mul_wrong_once(input):
    gate, up = (half.view(torch.int16) for half in input.chunk(2, dim=-1))
    output = silu_and_mul(input)
    return torch.where((gate == 0x3F80) & (up == 0x4000), output * 1.25, output)


def silu_and_mul_of_other_shape(input):
    return silu_and_mul(input)[:, :-1]


def silu_and_mul_interrupted(input):
    """Ctrl-C in the sixth call, warm-up included, unless the file MARK is there."""
    CALLS.append(1)
    if len(CALLS) == 6 and not MARK.exists():
        raise KeyboardInterrupt
    return silu_and_mul(input)


def silu_and_mul_rounded(input):
    return evaluate("silu_and_mul", {"input": input}, contract("silu_and_mul", "S1"))["output"]
