"""The order and the precision of the sum of squares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from difftest.mutants.entry import honest


def norm(input, weight, eps, sum_of_squares: Callable):
    """W0 with the given sum: (..., width) fp32 rows -> (..., 1)."""
    rows = input.float()
    mean_square = sum_of_squares(rows) / rows.shape[-1]
    return (rows * torch.rsqrt(mean_square + eps) * weight.float()).to(input.dtype)


def lanes(values, count):
    """Values dealt out to so many lanes in turn, zeros at the end: (..., per lane, lanes)."""
    return F.pad(values, (0, -values.shape[-1] % count)).unflatten(-1, (-1, count))


def tree(values):
    """Neighbours added, then neighbours of those: (..., n) -> (..., 1)."""
    while values.shape[-1] > 1:
        values = F.pad(values, (0, values.shape[-1] % 2))
        values = values[..., 0::2] + values[..., 1::2]
    return values


def one_after_the_other(values):
    """(..., steps, n) fp32 -> (..., n): fp32 additions from the first step to the last."""
    total = torch.zeros_like(values[..., 0, :])
    for step in range(values.shape[-2]):
        total = total + values[..., step, :]
    return total


@honest("rmsnorm")
def serial_sum(input, weight, eps):
    """One fp32 sum from the row's first element to its last."""

    def serial(rows):
        squares = rows.square()
        return torch.from_numpy(np.cumsum(squares.numpy(), axis=-1, dtype=np.float32))[..., -1:]

    return norm(input, weight, eps, serial)


@honest("rmsnorm")
def serial_sum_from_the_end(input, weight, eps):
    """One fp32 sum from the row's last element to its first."""

    def serial(rows):
        squares = rows.square().flip(-1)
        return torch.from_numpy(np.cumsum(squares.numpy(), axis=-1, dtype=np.float32))[..., -1:]

    return norm(input, weight, eps, serial)


@honest("rmsnorm")
def pairwise_sum(input, weight, eps):
    """A tree over the whole row."""
    return norm(input, weight, eps, lambda rows: tree(rows.square()))


@honest("rmsnorm")
def pairwise_halves(input, weight, eps):
    """A tree that adds the row's second half to its first, as shared-memory reductions do."""

    def halves(rows):
        squares = F.pad(rows.square(), (0, (1 << (rows.shape[-1] - 1).bit_length()) - rows.shape[-1]))
        while squares.shape[-1] > 1:
            first, second = squares.chunk(2, dim=-1)
            squares = first + second
        return squares

    return norm(input, weight, eps, halves)


@honest("rmsnorm")
def kahan_sum(input, weight, eps):
    """32 lanes, each a compensated sum, then a tree."""

    def kahan(rows):
        squares = lanes(rows.square(), 32)
        total, lost = torch.zeros_like(squares[..., 0, :]), torch.zeros_like(squares[..., 0, :])
        for step in range(squares.shape[-2]):
            corrected = squares[..., step, :] - lost
            larger = total + corrected
            lost = (larger - total) - corrected
            total = larger
        return tree(total)

    return norm(input, weight, eps, kahan)


@honest("rmsnorm")
def warp_of_32_lanes(input, weight, eps):
    """One warp: 32 lanes' sums, then a tree."""
    return norm(input, weight, eps, lambda rows: tree(one_after_the_other(lanes(rows.square(), 32))))


@honest("fused_add_rmsnorm")
def block_of_256_lanes(input, residual, weight, eps):
    """A block of 256 lanes' sums, then a tree."""
    total = input.float() + residual.float()
    residual.copy_(total)
    mean_square = tree(one_after_the_other(lanes(total.square(), 256))) / total.shape[-1]
    input.copy_(total * torch.rsqrt(mean_square + eps) * weight.float())


@honest("rmsnorm")
def vectors_of_eight(input, weight, eps):
    """64 lanes of vectors of eight: each vector's sum first, then the lane's, then a tree."""

    def sums(rows):
        vectors = lanes(rows.square(), 8)  # (..., vectors, 8)
        return tree(one_after_the_other(lanes(vectors.sum(-1), 64)))

    return norm(input, weight, eps, sums)


@honest("rmsnorm")
def blocks_of_128(input, weight, eps):
    """Sums of 128 neighbours, then the sum of those, one after the other."""

    def blocked(rows):
        partial = one_after_the_other(lanes(rows.square(), 128).transpose(-1, -2))
        return one_after_the_other(partial.unsqueeze(-1))

    return norm(input, weight, eps, blocked)


@honest("rmsnorm")
def fma_sum(input, weight, eps):
    """128 lanes that add by FMA: the square is never rounded."""

    def fma(rows):
        values = lanes(rows.double(), 128)
        total = torch.zeros_like(values[..., 0, :]).float()
        for step in range(values.shape[-2]):
            total = (total.double() + values[..., step, :].square()).float()
        return tree(total)

    return norm(input, weight, eps, fma)


@honest("rmsnorm")
def fp64_sum(input, weight, eps):
    """The sum in fp64, rounded to fp32 once."""
    return norm(input, weight, eps, lambda rows: rows.double().square().sum(-1, keepdim=True).float())


@honest("rmsnorm")
def torch_sum(input, weight, eps):
    """torch's own sum, a vectorised tree of blocks."""
    return norm(input, weight, eps, lambda rows: rows.square().sum(-1, keepdim=True))


@honest("gemma_rmsnorm")
def dot_product(input, weight, eps):
    """The sum of squares as a dot product of the row with itself."""
    rows = input.float()
    total = (rows.unsqueeze(-2) @ rows.unsqueeze(-1)).squeeze(-1)
    return (rows * torch.rsqrt(total / rows.shape[-1] + eps) * (weight.float() + 1.0)).to(input.dtype)


@honest("fused_add_rmsnorm")
def columns_in_two_parts(input, residual, weight, eps):
    """Two blocks of a cluster each sum their half of the columns."""
    total = input.float() + residual.float()
    residual.copy_(total)
    squares = total.square()
    half = squares.shape[-1] // 2
    summed = squares[..., :half].sum(-1, keepdim=True) + squares[..., half:].sum(-1, keepdim=True)
    input.copy_(total * torch.rsqrt(summed / total.shape[-1] + eps) * weight.float())
