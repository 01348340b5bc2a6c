"""Norms whose sum of squares has a known order, written plainly in NumPy; and the trees that were meant."""

import numpy as np
import torch

from difftest.identify.order.tree import Builder


def divided(total, width):
    return total / width


def norm(total, mean=divided):
    """`rmsnorm` whose squares, (rows, width) in fp32, are added up by `total`, and whose mean of a sum is `mean(sum, width)`."""

    def rmsnorm(input, weight, eps):
        rows = input.float()
        with np.errstate(over="ignore"):
            sums = torch.from_numpy(np.asarray(total(rows.square().numpy()), np.float32))
        rstd = torch.rsqrt(mean(sums[:, None], rows.shape[1]) + eps)
        return (rows * rstd * weight.float()).to(input.dtype)

    return rmsnorm


def times_the_reciprocal(total, width):
    return total * np.float32(1 / width)


def ulps_off(count):
    """A mean that is so many units in the last place off, as that of an approximate division may be."""
    return lambda total, width: torch.from_numpy(((total / width).numpy().view(np.int32) + count).view(np.float32))


def by_tree(tree):
    """`rmsnorm` that adds as a tree says."""
    return norm(lambda squares: tree.sums(squares.T))


def one_by_one(squares):
    total = np.zeros(len(squares), np.float32)
    for column in squares.T:
        total = total + column
    return total


def backwards(squares):
    return one_by_one(squares[:, ::-1])


def neighbours_first(squares):
    while squares.shape[1] > 1:
        squares = padded(squares, 2)
        squares = squares[:, ::2] + squares[:, 1::2]
    return squares[:, 0]


def lanes_then_butterfly(squares):
    """Lane k of 32 adds elements k, k + 32, …; then lanes 16, 8, 4, 2 and 1 apart meet."""
    lanes = np.stack([one_by_one(padded(squares, 32)[:, k::32]) for k in range(32)], 1)
    for distance in (16, 8, 4, 2, 1):
        lanes = lanes[:, :distance] + lanes[:, distance : 2 * distance]
    return lanes[:, 0]


def blocks_of_eight(squares):
    squares = padded(squares, 8)
    return one_by_one(np.stack([one_by_one(squares[:, k : k + 8]) for k in range(0, squares.shape[1], 8)], 1))


def compensated(squares):
    total = lost = np.zeros(len(squares), np.float32)
    for column in squares.T:
        more = column - lost
        higher = total + more
        total, lost = higher, (higher - total) - more
    return total


def in_fp64(squares):
    return squares.astype(np.float64).sum(1)


def padded(squares, multiple):
    return np.pad(squares, ((0, 0), (0, -squares.shape[1] % multiple)))


def fused_multiply_add(input, weight, eps):
    """`rmsnorm` with one chain of fused multiply-adds: the product is exact in float64, so each sum is rounded once to fp32."""
    rows = input.double()
    total = torch.zeros(len(rows))
    for column in rows.T:
        total = (total.double() + column * column).float()
    return (rows.float() * torch.rsqrt(total[:, None] / rows.shape[1] + eps) * weight.float()).to(input.dtype)


def all_in_fp64(input, weight, eps):
    rows = input.double()
    return (rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight.double()).to(input.dtype)


def our_tree(width, itemsize):
    """The tree that numba_kernels.kernels.tree declares, from its first paragraph and `row_tree`."""
    from numba_kernels.kernels.tree import row_tree

    row, builder = row_tree(width, itemsize), Builder(width)

    def chain(parts):
        node = None
        for part in parts:
            if part is not None:
                node = part if node is None else builder.join(node, part)
        return node

    def butterfly(lanes):
        for distance in (16, 8, 4, 2, 1):
            lanes = [chain([lanes[k], lanes[k + distance]]) for k in range(distance)]
        return lanes[0]

    def vector(v):
        return chain(range(v * row.vector, (v + 1) * row.vector)) if v < row.vectors else None

    def tile(t):
        first = t * 32 * row.vectors_per_lane
        return butterfly([chain(vector(first + 32 * k + lane) for k in range(row.vectors_per_lane)) for lane in range(32)])

    tiles = [tile(t) for t in range(row.tiles)]
    butterfly([chain(tiles[lane::32]) for lane in range(32)])
    return builder.tree()
