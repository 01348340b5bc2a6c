"""Candidates for a matrix: one that takes its process with it, one that raises, one that is not what it claims to be."""

import os
import signal

import torch


def _normalised(input, eps):
    rows = input.float()
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)


def rmsnorm_right(input, weight, eps):
    return (_normalised(input, eps) * weight.float()).to(input.dtype)


def rmsnorm_other(input, weight, eps):
    return (_normalised(input, eps).to(input.dtype).float() * weight.float()).to(input.dtype)


def rmsnorm_dies(input, weight, eps):
    if input.shape[-1] == 16:
        os.kill(os.getpid(), signal.SIGKILL)
    return rmsnorm_right(input, weight, eps)


def rmsnorm_raises(input, weight, eps):
    raise RuntimeError("no kernel image")
