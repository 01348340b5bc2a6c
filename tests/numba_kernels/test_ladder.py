"""The ladder of norm kernels: every step is right, and held to the step before it. On the CPU emulator."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from difftest.verdict import judge
from numba_kernels import tuning
from numba_kernels.kernels.config import TextbookConfig
from numba_kernels.kernels.ladder import STEPS, Step, textbook
from reference.contracts import contract

from .rows import random, to_torch
from .test_tree import run

H200 = tuning.Target("sm_90", shared_bytes=232448, processors=132, clusters=16, pdl=True, bulk_prefetch=True)
BY_NAME = {step.name: step for step in STEPS}
SHORT, WIDE = (5, 256, "fp32"), (3, 8192, "fp32")  # by parts of a block, by clusters of 4
FIRST = {pair: SHORT for pair in list(pairwise(BY_NAME))[:5]} | {pair: WIDE for pair in list(pairwise(BY_NAME))[5:]}
FAST = [(pair, FIRST[pair]) for pair in list(FIRST)[:1]]  # from the textbook form on
SHAPES = (SHORT, WIDE, (2, 111, "bf16"), (3, 4096, "bf16"))
PAIRS = [
    pytest.param(*pair, shape, marks=() if (pair, shape) in FAST else pytest.mark.slow, id=f"{pair[1]}-{shape}")
    for pair in pairwise(BY_NAME)
    for shape in SHAPES
]


@cache
def outputs(name, rows, width, dtype):
    """The inputs, and the outputs' bits by a step's kernel; rows are taken by two clusters where they are taken."""
    x, residual, weight = random((rows, width), dtype), random((rows, width), dtype, 1), random((width,), dtype, 2)
    plan = BY_NAME[name].plan(rows, width, dtype, H200)
    kernel = plan.kernel(H200, (0,) * 4, True)
    assert kernel.config == plan.config
    blocks = 2 * kernel.config.cluster if kernel.config.persistent else None
    return kernel, (x, residual, weight), run(kernel, x, residual, weight, blocks=blocks)


def conforms(arrays, found):
    """Whether outputs are what R0W0 allows."""
    inputs = dict(zip(("input", "residual", "weight"), map(to_torch, arrays), strict=True))
    output, residual = (to_torch(words.view(arrays[0].dtype)) for words in found)
    of = "fused_add_rmsnorm"
    return judge(of, inputs, {"output": output, "residual": residual}, contract(of, "R0W0")).conforms


def sums_by_the_tree(config):
    return not isinstance(config, TextbookConfig) and config.fixed_tree


@pytest.mark.parametrize(("before", "step", "shape"), PAIRS)
def test_a_step_has_the_bits_of_the_one_before_or_the_tree_is_another_and_both_conform(before, step, shape):
    first, arrays, want = outputs(before, *shape)
    second, _, got = outputs(step, *shape)
    assert np.array_equal(got[1], want[1])
    if sums_by_the_tree(first.config) and sums_by_the_tree(second.config):
        assert np.array_equal(got[0], want[0])
    assert conforms(arrays, got)
    assert conforms(arrays, want)


def test_the_verdict_that_steps_are_held_to_finds_one_element_that_is_off():
    _, arrays, (output, stored) = outputs("several rows a block", *SHORT)
    output = output.copy()
    output[2, 7] ^= 0x10000
    assert not conforms(arrays, (output, stored))


@pytest.mark.parametrize(("rows", "width"), [(16, 4096), (4096, 4096), (8192, 65536), (8192, 111), (1, 16384), (64, 1 << 20)])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_last_step_is_what_tuning_chooses(rows, width, dtype):
    plan = STEPS[-1].plan(rows, width, dtype, H200)
    chosen = replace(plan, config=None).kernel(H200, (0,) * 4, True)
    assert plan.config == chosen.config


@pytest.mark.parametrize(
    ("rows", "width", "changes"),
    [
        (8192, 128, {"the fixed tree", "dependent launch and prefetch", "several rows a block"}),
        (4096, 4096, {"the fixed tree", "dependent launch and prefetch"}),
        (1, 16384, {"the fixed tree", "dependent launch and prefetch", "a cluster"}),
        (8192, 65536, {"a persistent cluster"}),
    ],
)
def test_each_step_adds_something_where_it_applies(rows, width, changes):
    found = {}
    for step in STEPS:
        with suppress(ValueError):  # a row that doesn't fit
            found[step.name] = step.plan(rows, width, "bf16", H200).config
    compared = [(a, b) for a, b in pairwise(BY_NAME) if a in found and b in found]
    always = {"16-byte vectors", "the row in registers"}
    assert {b for a, b in compared if found[a] != found[b]} - always == changes
    assert all(step.why and "\n" not in step.why for step in STEPS)


def test_a_step_that_cannot_take_a_row_says_why():
    with pytest.raises(ValueError, match="a row of 65536 in fp32 does not fit the shared memory of a block"):
        Step("textbook", textbook).plan(1, 65536, "bf16", H200)


@pytest.mark.slow
def test_without_the_fixed_tree_a_rows_bits_depend_on_the_threads():
    """What the fixed tree is for, seen in fp32. That with it they don't is what test_tree.py is about."""
    x, residual, weight = random((64, 1024), "fp32"), random((64, 1024), "fp32", 1), random((1024,), "fp32", 2)
    kernel = BY_NAME["the row in registers"].plan(64, 1024, "fp32", H200).kernel(H200, (0,) * 4, True)
    found = []
    for threads, tiles in ((256, 1), (128, 2)):
        config = replace(kernel.config, threads_per_row=threads, tiles_per_warp=tiles, exact=False)
        found.append(run(replace(kernel, config=config), x, residual, weight)[0])
    assert not np.array_equal(*found)
