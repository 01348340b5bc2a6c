"""What is planted for compute-sanitizer, the emulator finds too, in the line where it is."""

import inspect

import numpy as np
import pytest

from numba_kernels.emulator import DataRace, DivergentBarrier, EmulatedKernel, OutOfBounds, UninitializedRead

from .planted import KERNELS, THREADS


@pytest.mark.parametrize(
    ("tool", "kinds"),
    [
        ("memcheck", OutOfBounds),
        ("racecheck", (DataRace, UninitializedRead)),  # whichever comes first: the read before the write, or the other way round
        ("synccheck", DivergentBarrier),
    ],
)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_emulator_finds_what_is_planted_for_the_sanitizer(tool, kinds, seed):
    kernel = KERNELS[tool]
    with pytest.raises(kinds) as found:
        EmulatedKernel(kernel, check="full").launch(1, THREADS, (np.zeros(THREADS, np.int32),), schedule_seed=seed)
    lines, first = inspect.getsourcelines(kernel)
    (planted,) = (first + k for k, line in enumerate(lines) if "# planted" in line)
    assert found.value.line == planted
    assert found.value.kernel == kernel.__name__
