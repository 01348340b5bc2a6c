"""What a call of a compiler is spared. What it does to garbage collection: test_machine_code.py."""

import sys

import pytest

from numba_kernels.undisturbed import undisturbed


def test_it_gives_what_the_call_gives_and_raises_what_it_raises():
    assert undisturbed(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        undisturbed(divmod, 7, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted as Linux counts them")
def test_no_frame_makes_python_ask_the_system_for_stack():
    import resource

    def deep(frames):
        return deep(frames - 1) if frames else 0

    def touched_anew():
        """Pages, while frames go back and forth over every place where a piece of 16 KB can end."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(50):
            for frames in range(1, 300):
                deep(frames)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    undisturbed(touched_anew)  # the pages of the room
    assert undisturbed(touched_anew) < 1000
