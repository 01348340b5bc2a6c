"""Wrong for some ranks, or for some widths of a row."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


def over(total, width, rows, weight, eps, dtype):
    """The norm of rows whose sum of squares is given, (..., 1), over any width."""
    return (rows * torch.rsqrt(total / width + eps) * weight.float()).to(dtype)


def without_last(rows):
    """The sums of squares without each row's last element."""
    return rows[..., :-1].square().sum(-1, keepdim=True)


def sum_of_squares(rows):
    """(..., 1)."""
    return rows.square().sum(-1, keepdim=True)


@mutant("rmsnorm", "kind of M06")
def four_dimensions_transposed(input, weight, eps):
    """A 4-D tensor comes back with its first two axes' rows in exchanged order."""
    output = plain.rmsnorm(input, weight, eps)
    if input.dim() == 4:
        output = output.transpose(0, 1).reshape(output.shape)
    return output


@mutant("rmsnorm", "kind of T16")
def four_dimensions_over_two_axes(input, weight, eps):
    """A 4-D tensor is normalised over its last two axes together, as `normalized_shape` of two numbers would."""
    rows = input.float()
    axes = (-2, -1) if input.dim() == 4 else (-1,)
    mean_square = rows.square().mean(axes, keepdim=True)
    return (rows * torch.rsqrt(mean_square + eps) * weight.float()).to(input.dtype)


@mutant("silu_and_mul", "kind of flashinfer#634")
def first_planes_of_a_batch(input):
    """Of a 3-D batch the first plane alone is done, the others are zero."""
    output = plain.silu_and_mul(input)
    if input.dim() == 3:
        output[1:] = 0
    return output


@mutant("rmsnorm", "kind of M10")
def one_dimension_becomes_two(input, weight, eps):
    """A 1-D row comes back as a matrix of one row."""
    output = plain.rmsnorm(input, weight, eps)
    return output[None] if input.dim() == 1 else output


@mutant("rmsnorm", "sglang#23636")
def no_rows_raise(input, weight, eps):
    """A call of no rows raises: a grid of no blocks."""
    if not input.numel():
        raise RuntimeError("CUDA error: invalid configuration argument")
    return plain.rmsnorm(input, weight, eps)


@mutant("rmsnorm", "flashinfer#718")
def above_4096(input, weight, eps):
    """Elements from 4096 on are not in the sum of squares: the row's registers end there."""
    rows = input.float()
    return over(sum_of_squares(rows[..., :4096]), rows.shape[-1], rows, weight, eps, input.dtype)


@mutant("rmsnorm", "flashinfer#718", widths="16385", regimes="normal", cases="0", strength="0")
def above_16384(input, weight, eps):
    """Elements from 16 384 on are not in the sum of squares: the row's shared memory ends there."""
    rows = input.float()
    return over(sum_of_squares(rows[..., :16384]), rows.shape[-1], rows, weight, eps, input.dtype)


@mutant("rmsnorm", "kind of M04")
def power_of_two_and_one(input, weight, eps):
    """At a width of 2^k + 1 the last element, alone in its vector, is left out of the sum of squares."""
    rows, width = input.float(), input.shape[-1]
    alone = width > 8 and (width - 1) & (width - 2) == 0
    return over(without_last(rows) if alone else sum_of_squares(rows), width, rows, weight, eps, input.dtype)


@mutant("fused_add_rmsnorm", "kind of M02")
def multiples_of_1024(input, residual, weight, eps):
    """At multiples of 1024 the row's last element is left out of the sum of squares."""
    total = input.float() + residual.float()
    residual.copy_(total)
    squares = sum_of_squares(total) if total.shape[-1] % 1024 else without_last(total)
    input.copy_(over(squares, total.shape[-1], total, weight, eps, input.dtype))


@mutant("rmsnorm", "kind of T16")
def at_1024_alone(input, weight, eps):
    """At width 1024 the row's last element is left out of the sum of squares."""
    rows, width = input.float(), input.shape[-1]
    return over(without_last(rows) if width == 1024 else sum_of_squares(rows), width, rows, weight, eps, input.dtype)


@mutant("rmsnorm", "vllm#44692")
def right_at_4096_alone(input, weight, eps):
    """At every other width the result is 20 % too large: a tuning table of one entry."""
    output = plain.rmsnorm(input, weight, eps)
    return output if input.shape[-1] == 4096 else output * 1.2


@mutant("rmsnorm", "kind of N10")
def fewer_elements_than_lanes(input, weight, eps):
    """Below 32 elements the idle lanes of the warp add the row's first element once more."""
    rows, width = input.float(), input.shape[-1]
    total = sum_of_squares(rows)
    if width < 32:
        total = total + rows[..., :1].square()
    return over(total, width, rows, weight, eps, input.dtype)


@mutant("rmsnorm", "flashinfer#634, #645")
def warps_not_a_power_of_two(input, weight, eps):
    """The tree over the warps' sums assumes a power of two of them: the warps beyond are not added."""
    rows, width = input.float(), input.shape[-1]
    warps = -(-width // 256)
    kept = 256 * (1 << (warps.bit_length() - 1))
    return over(sum_of_squares(rows[..., :kept]), width, rows, weight, eps, input.dtype)


@mutant("rmsnorm", "kind of M02")
def mean_over_padded_width(input, weight, eps):
    """The mean divides by the next power of two, the block's size, instead of by the width."""
    rows = input.float()
    padded = 1 << (rows.shape[-1] - 1).bit_length()
    return over(sum_of_squares(rows), padded, rows, weight, eps, input.dtype)


@mutant("rmsnorm", "kind of M02")
def one_element_dropped(input, weight, eps):
    """The last element of each row is left out of the sum of squares: within every published tolerance."""
    rows, width = input.float(), input.shape[-1]
    return over(without_last(rows) if width > 1 else sum_of_squares(rows), width, rows, weight, eps, input.dtype)


@mutant("gemma_rmsnorm", "kind of M02")
def one_element_counted_twice(input, weight, eps):
    """The first element of each row is in the sum of squares twice: two lanes meet at the border of their parts."""
    rows = input.float()
    total = sum_of_squares(rows) + rows[..., :1].square()
    return over(total, rows.shape[-1], rows, weight.float() + 1.0, eps, input.dtype)


@mutant("rmsnorm", "kind of M04")
def tail_of_a_vector_unweighted(input, weight, eps):
    """Where the width is no multiple of 8, the elements after the last whole vector are not multiplied by the weight."""
    full = input.shape[-1] // 8 * 8
    used = weight.clone()
    used[full:] = 1
    return plain.rmsnorm(input, used, eps)


@mutant("silu_and_mul", "kind of M04")
def half_a_vector(input):
    """At widths that are a multiple of 8 and not of 16 the last 8 elements are those before them."""
    output = plain.silu_and_mul(input)
    if output.shape[-1] % 16 == 8 and output.shape[-1] > 8:
        output[..., -8:] = output[..., -16:-8]
    return output


@mutant("rmsnorm", "kind of nntrainer#4318")
def width_one_is_the_sign(input, weight, eps):
    """A row of one element is its sign times the weight, without eps."""
    if input.shape[-1] > 1:
        return plain.rmsnorm(input, weight, eps)
    return (input.sign().float() * weight.float()).to(input.dtype)


@mutant("rmsnorm", "kind of vllm#3324")
def multiple_of_eight_or_raises(input, weight, eps):
    """Widths that are no multiple of eight are refused, by raising."""
    if input.shape[-1] % 8:
        raise ValueError("hidden size must be a multiple of 8")
    return plain.rmsnorm(input, weight, eps)


@mutant("gelu_and_mul", "kind of vllm#3324")
def odd_width_takes_the_wrong_half(input):
    """At odd widths up begins one element early, at the gate's last."""
    width = input.shape[-1] // 2
    gate, up = input[..., :width].float(), input[..., width - width % 2 : 2 * width - width % 2].float()
    return (plain.gelu(gate) * up).to(input.dtype)
