"""Stands for a person who presses Ctrl-C, or a time limit: wrong (returns zeros) or right for five cases of four calls, then
interrupted."""

import os
import signal

import torch

from difftest.mutants.plain import rmsnorm as right

calls = 0


def _count():
    global calls
    calls += 1
    if calls > 20:
        raise KeyboardInterrupt


def wrong_rmsnorm(input, weight, eps):
    _count()
    return torch.zeros_like(input)


def terminated_rmsnorm(input, weight, eps):
    global calls
    calls += 1
    if calls > 20:
        os.kill(os.getpid(), signal.SIGTERM)
    return right(input, weight, eps)


def right_rmsnorm(input, weight, eps):
    _count()
    return right(input, weight, eps)
