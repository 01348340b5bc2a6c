"""Takes its process down in the middle of a call, as a stray pointer would."""

import os
import signal

from difftest.mutants import plain


def rmsnorm(input, weight, eps):
    os.kill(os.getpid(), signal.SIGKILL)


def dies_at_width_3(input, weight, eps):
    """Dies in a call of zeros of that width, and is right in any other."""
    if input.shape[-1] == 3 and not input.any():
        os.kill(os.getpid(), signal.SIGKILL)
    return plain.rmsnorm(input, weight, eps)
