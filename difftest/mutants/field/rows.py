"""Wrong for some numbers of rows, or in some of the rows."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


def rows_of(input):
    """The number of rows of a call."""
    return input.shape[:-1].numel()


@mutant("rmsnorm", "kind of sglang#22931")
def one_row_too_large(input, weight, eps):
    """A call of one row, the decode path, gives 1.5 times the value."""
    output = plain.rmsnorm(input, weight, eps)
    return output * 1.5 if rows_of(input) == 1 else output


@mutant("fused_add_rmsnorm", "kind of vllm#52104")
def one_row_under_another_contract(input, residual, weight, eps):
    """A call of one row normalises the stored sum (R1), every other call the fp32 sum (R0)."""
    if rows_of(input) != 1:
        return plain.fused_add_rmsnorm(input, residual, weight, eps)
    residual.add_(input)
    input.copy_(plain.normalised(residual.float(), weight, eps))


@mutant("rmsnorm", "kind of N09")
def one_row_squared_in_storage(input, weight, eps):
    """A call of one row squares in the storage dtype."""
    if rows_of(input) != 1:
        return plain.rmsnorm(input, weight, eps)
    mean_square = input.square().float().mean(-1, keepdim=True)
    return (input.float() * torch.rsqrt(mean_square + eps) * weight.float()).to(input.dtype)


@mutant("silu_and_mul", "kind of flashinfer, split rows of small batches")
def one_row_of_gated_left_half_done(input):
    """A call of one row leaves the last quarter of it without its activation."""
    output = plain.silu_and_mul(input)
    if rows_of(input) == 1:
        gate, up = plain.halves(input)
        start = output.shape[-1] - output.shape[-1] // 4
        output[..., start:] = (gate * up)[..., start:]
    return output


@mutant("rmsnorm", "kind of M10")
def two_or_seven_rows(input, weight, eps):
    """In calls of two and of seven rows the last row is a copy of the one before it."""
    output = plain.rmsnorm(input, weight, eps)
    if rows_of(input) in (2, 7):
        rows = output.view(-1, output.shape[-1])
        rows[-1] = rows[-2]
    return output


@mutant("fused_add_rmsnorm", "kind of sglang#22931")
def fewer_than_three_rows(input, residual, weight, eps):
    """With one or two rows the mean square is that of the input alone, without the residual."""
    alone = input.float()
    total = alone + residual.float()
    residual.copy_(total)
    squared = alone if rows_of(input) < 3 else total
    input.copy_(total * plain.rstd(squared, eps) * weight.float())


@mutant("rmsnorm", "kind of helion#1672")
def last_row_of_several(input, weight, eps):
    """The last of several rows gets the rstd of the row before it."""
    rows = input.float().reshape(-1, input.shape[-1])
    rstd = plain.rstd(rows, eps)
    if len(rows) > 1:
        rstd = torch.cat((rstd[:-1], rstd[-2:-1]))
    return (rows * rstd * weight.float()).to(input.dtype).view(input.shape)


@mutant("rmsnorm", "helion#1672")
def last_row_skipped(input, weight, eps):
    """The last row is never computed: its output is what the allocator's memory held."""
    output = torch.empty_like(input)
    output[:-1] = plain.rmsnorm(input, weight, eps)[:-1]
    return output


@mutant("fused_add_rmsnorm", "helion#1672")
def last_row_skipped_in_place(input, residual, weight, eps):
    """The last row is left as it was."""
    if input.dim() > 1:
        plain.fused_add_rmsnorm(input[:-1], residual[:-1], weight, eps)


@mutant("rmsnorm", "kind of M08")
def rows_from_33_on(input, weight, eps):
    """From row 33 on each row gets the rstd of the row 32 places before it: a grid of 32 blocks that strides, its sums kept."""
    rows = input.float().reshape(-1, input.shape[-1])
    rstd = plain.rstd(rows, eps)
    rstd[32:] = rstd[torch.arange(32, max(len(rows), 32)) % 32]
    return (rows * rstd * weight.float()).to(input.dtype).view(input.shape)


@mutant("silu_and_mul", "kind of M08")
def rows_from_129_on(input):
    """From row 129 on gate and up are exchanged."""
    output = plain.silu_and_mul(input)
    gate, up = input.reshape(-1, input.shape[-1])[128:].chunk(2, dim=-1)
    output.view(-1, output.shape[-1])[128:] = plain.silu_and_mul(torch.cat((up, gate), dim=-1))
    return output


@mutant("rmsnorm", "flashinfer#3392", rows="65537", widths="3", regimes="normal", cases="0", strength="0")
def rows_from_65536_on(input, weight, eps):
    """Rows from 65 536 on are left at zero: the y axis of a grid ends at 65 535."""
    output = plain.rmsnorm(input, weight, eps)
    output.view(-1, output.shape[-1])[65535:] = 0
    return output


@mutant("rmsnorm", "kind of vllm#48271")
def odd_number_of_rows(input, weight, eps):
    """Two rows a block: of an odd number of rows the last one is normalised with the mean over twice the width."""
    rows = input.float().reshape(-1, input.shape[-1])
    mean_square = rows.square().mean(-1, keepdim=True)
    if len(rows) % 2:
        mean_square[-1] /= 2
    return (rows * torch.rsqrt(mean_square + eps) * weight.float()).to(input.dtype).view(input.shape)


@mutant("gemma_fused_add_rmsnorm", "kind of vllm#48391")
def more_than_256_rows(input, residual, weight, eps):
    """From 257 rows on, where the block becomes smaller, the row's last element is left out of the sum of squares."""
    total = input.float() + residual.float()
    residual.copy_(total)
    squares = total.square()
    if rows_of(input) > 256 and total.shape[-1] > 1:
        squares[..., -1] = 0
    input.copy_(total * torch.rsqrt(squares.mean(-1, keepdim=True) + eps) * (weight.float() + 1.0))
