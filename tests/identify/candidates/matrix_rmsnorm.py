"""Candidates for a matrix: one that takes its process with it, one that raises, one that is what it claims."""

import os
import signal

from norms import rmsnorm_w0, rmsnorm_w1


def rmsnorm_dies(input, weight, eps):
    if input.shape[-1] == 16:
        os.kill(os.getpid(), signal.SIGKILL)
    return rmsnorm_w0(input, weight, eps)


def rmsnorm_raises(input, weight, eps):
    raise RuntimeError("no kernel image")


def rmsnorm_right(input, weight, eps):
    return rmsnorm_w0(input, weight, eps)


def rmsnorm_other(input, weight, eps):
    return rmsnorm_w1(input, weight, eps)
