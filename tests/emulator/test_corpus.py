"""Kernels of users' kinds under the full check: no right one is accused, no faulty one missed, in any of 20 drawn schedules."""

import numpy as np
import pytest

from numba_kernels.emulator import EmulatedKernel, EmulatorError

from .corpus import ended, forms  # noqa: F401  # they add to both
from .corpus.right import RIGHT
from .corpus.wrong import WRONG

SCHEDULES = 20
SAMPLE = {  # every run; the rest takes a minute or two
    "claims_a_slot",
    "scan_two_buffers",
    "lock_without_fence",
    "votes_of_the_lanes_that_are_left",
    "a_barrier_of_the_grid_in_a_branch_with_each_first_thread",
    "a_first_thread_that_ends_before_a_barrier_of_the_grid",
}


def cases(corpus):
    return [
        pytest.param(*case, id=case[0].__name__, marks=[] if case[0].__name__ in SAMPLE else pytest.mark.slow) for case in corpus
    ]


def test_there_are_sixty_of_each():
    for corpus in (RIGHT, WRONG):
        assert len({case[0].__name__ for case in corpus}) == len(corpus) >= 60


@pytest.mark.parametrize(("kernel", "grid", "block", "make", "want", "which", "options"), cases(RIGHT))
def test_a_right_kernel_is_not_accused(kernel, grid, block, make, want, which, options):
    emulated = EmulatedKernel(kernel, check="full")
    for seed in (None, *range(SCHEDULES)):
        args = make()
        notes = emulated.launch(grid, block, args, schedule_seed=seed, **options)
        assert notes == []
        found = args[which]
        np.testing.assert_array_equal(found[0] if isinstance(found, tuple) else found, want)


@pytest.mark.parametrize(("kernel", "grid", "block", "make", "kinds", "options"), cases(WRONG))
def test_a_faulty_kernel_is_found(kernel, grid, block, make, kinds, options):
    emulated = EmulatedKernel(kernel, check="full")
    first = kernel.__code__.co_firstlineno
    for seed in (None, *range(SCHEDULES)):
        with pytest.raises(EmulatorError) as caught:
            emulated.launch(grid, block, make(), schedule_seed=seed, **options)
        assert type(caught.value) in kinds
        assert caught.value.line > first
