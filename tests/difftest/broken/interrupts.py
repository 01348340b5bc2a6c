"""Stands for a person who presses Ctrl-C: wrong (returns zeros) for five calls, then interrupted. `rmsnorm` is right."""

import torch
from plain import rmsnorm as right

calls = 0


def _count():
    global calls
    calls += 1
    if calls > 5:
        raise KeyboardInterrupt


def wrong_rmsnorm(input, weight, eps):
    _count()
    return torch.zeros_like(input)


def right_rmsnorm(input, weight, eps):
    _count()
    return right(input, weight, eps)
