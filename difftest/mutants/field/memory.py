"""Right values in the wrong place, from the wrong place, or more than there should be."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


def last_of(tensor):
    """The place of a tensor's last element in its memory."""
    return tensor.storage_offset() + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


@mutant("fused_add_rmsnorm", "LightLLM#1467")
def residual_by_the_inputs_stride(input, residual, weight, eps):
    """The residual's rows are addressed with the input's row stride."""
    if residual.dim() == 2:
        residual = torch.as_strided(residual, residual.shape, input.stride(), residual.storage_offset())
    plain.fused_add_rmsnorm(input, residual, weight, eps)


@mutant("rmsnorm", "kind of LightLLM#1467")
def out_by_the_inputs_stride(input, weight, eps, out=None):
    """The rows of `out` are addressed with the input's row stride."""
    if out is None:
        return plain.rmsnorm(input, weight, eps)
    there = out if out.dim() != 2 else torch.as_strided(out, out.shape, input.stride(), out.storage_offset())
    there.copy_(plain.rmsnorm(input, weight, eps))
    return out


@mutant("rmsnorm", "vllm#3324")
def stride_ignored(input, weight, eps):
    """Rows are taken to lie one after the other, whatever the row stride says."""
    packed = torch.as_strided(input, input.shape, torch.empty(input.shape).stride(), input.storage_offset())
    return plain.rmsnorm(packed, weight, eps)


@mutant("rmsnorm", "kind of flashinfer#3392, Liger#1483")
def positions_in_32_bits(input, weight, eps, out=None):
    """A row's place in the input is kept in 32 bits: of rows 2^31 elements apart the third is read next to the first."""
    if input.dim() != 2 or input.stride(0) < 2**24:
        return plain.rmsnorm(input, weight, eps, out)
    starts = (row * input.stride(0) % 2**32 for row in range(len(input)))
    rows = [input.as_strided(input.shape[1:], (1,), input.storage_offset() + start) for start in starts]
    return plain.rmsnorm(torch.stack(rows), weight, eps, out)


@mutant("fused_add_rmsnorm", "kind of flashinfer#3392, Liger#1483")
def residual_positions_in_32_bits(input, residual, weight, eps):
    """A row's place in the residual is kept in 32 bits, a row's place in the input is not."""
    if residual.dim() != 2 or residual.stride(0) < 2**24:
        return plain.fused_add_rmsnorm(input, residual, weight, eps)
    for row in range(len(residual)):
        start = residual.storage_offset() + row * residual.stride(0) % 2**32
        plain.fused_add_rmsnorm(input[row], residual.as_strided(residual.shape[1:], (1,), start), weight, eps)


@mutant("rmsnorm", "TransformerEngine#886")
def tail_wrong_at_a_misaligned_base(input, weight, eps):
    """Where the input's base is no multiple of 16 bytes, the scalar path takes the last weight from the element before it."""
    if input.data_ptr() % 16 and input.shape[-1] > 1:
        weight = weight.clone()
        weight[-1] = weight[-2]
    return plain.rmsnorm(input, weight, eps)


@mutant("fused_add_rmsnorm", "vllm#45466")
def misaligned_residual_read_aligned(input, residual, weight, eps):
    """Where the residual's base is no multiple of 16 bytes, what is added are the elements from the multiple before it on."""
    away = residual.data_ptr() % 16 // residual.element_size()
    if not away or not residual.numel():
        return plain.fused_add_rmsnorm(input, residual, weight, eps)
    shifted = torch.as_strided(residual, residual.shape, residual.stride(), residual.storage_offset() - away)
    total = input.float() + shifted.float()
    residual.copy_(total)
    input.copy_(plain.normalised(total, weight, eps))


@mutant("rmsnorm", "nano-vllm#170")
def out_that_is_the_input(input, weight, eps, out=None):
    """In place, with `out` the input itself, the result is twice the right one."""
    output = plain.rmsnorm(input, weight, eps)
    if out is None:
        return output
    return out.copy_(output * 2 if out.data_ptr() == input.data_ptr() else output)


@mutant("gelu_tanh_and_mul", "kind of nano-vllm#170")
def out_not_written(input, out=None):
    """A given `out` is left as it was, and another tensor returned."""
    return plain.gelu_tanh_and_mul(input)


@mutant("fused_add_rmsnorm", "kind of M04")
def one_element_past_the_row(input, residual, weight, eps):
    """Right values, and one element more than the last row has."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    if residual.numel():
        torch.as_strided(residual, (1,), (1,), last_of(residual) + 1).fill_(0)


@mutant("rmsnorm", "kind of M04")
def vector_store_past_the_row(input, weight, eps, out=None):
    """A row's last vector is stored whole: up to seven elements past each row of a given `out`."""
    result = plain.rmsnorm(input, weight, eps)
    if out is None:
        return result
    out.copy_(result)
    beyond = -out.shape[-1] % 8
    if beyond and out.numel():
        torch.as_strided(out, (beyond,), (1,), last_of(out) + 1).fill_(0)
    return out


@mutant("fused_add_rmsnorm", "kind of TransformerEngine#886")
def one_element_before_the_row(input, residual, weight, eps):
    """A misaligned store is rounded down: the element before the input's first row is overwritten."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    if input.numel() and input.storage_offset():
        torch.as_strided(input, (1,), (1,), input.storage_offset() - 1).fill_(0)


@mutant("rmsnorm", "kind of Liger#1483")
def weight_changed(input, weight, eps):
    """The weight is changed in place and changed back, which rounds it."""
    output = plain.rmsnorm(input, weight, eps)
    weight.add_(1).sub_(1)
    return output


@mutant("rmsnorm", "kind of nano-vllm#170")
def input_changed(input, weight, eps):
    """The input is overwritten by the result, though the operator is not an in-place one."""
    output = plain.rmsnorm(input, weight, eps)
    input.copy_(output)
    return output


@mutant("rmsnorm", "kind of nano-vllm#170")
def input_returned(input, weight, eps):
    """The result is the caller's own input, overwritten."""
    return input.copy_(plain.rmsnorm(input, weight, eps))


@mutant("silu_and_mul", "kind of nano-vllm#170")
def view_of_the_input_returned(input):
    """The result lies in the gate's half of the caller's input."""
    gate = input[..., : input.shape[-1] // 2]
    return gate.copy_(plain.silu_and_mul(input))


_KEPT: dict[tuple, torch.Tensor] = {}


@mutant("rmsnorm", "KernelBench#165, flashinfer#3607")
def one_result_buffer_for_all_calls(input, weight, eps):
    """The result of a call lies in the same memory as that of the last call of its shape."""
    result = plain.rmsnorm(input, weight, eps)
    kept = _KEPT.setdefault((result.shape, result.dtype), torch.empty_like(result))
    return kept.copy_(result)


@mutant("fused_add_rmsnorm", "Liger#959")
def residual_not_written_back(input, residual, weight, eps):
    """The sum is normalised and never stored."""
    plain.fused_add_rmsnorm(input, residual.clone(), weight, eps)


@mutant("fused_add_rmsnorm", "LightLLM#1467")
def strided_residual_not_written_back(input, residual, weight, eps):
    """Rows that are apart are copied together first, and the new residual stays in the copy."""
    plain.fused_add_rmsnorm(input, residual if residual.is_contiguous() else residual.contiguous(), weight, eps)


@mutant("fused_add_rmsnorm", "LightLLM#1467")
def strided_input_not_written_back(input, residual, weight, eps):
    """Rows of the input that are apart are copied together first, and the output stays in the copy."""
    plain.fused_add_rmsnorm(input if input.is_contiguous() else input.contiguous(), residual, weight, eps)


@mutant("rmsnorm", "kind of M06")
def next_row_read(input, weight, eps):
    """The sum of squares begins at the row's second element and takes in the one after its end."""
    rows = input.float()
    if not input.numel() or input.dim() != 2:
        return plain.rmsnorm(input, weight, eps)
    shifted = torch.as_strided(input, input.shape, input.stride(), input.storage_offset() + 1).float()
    return (rows * plain.rstd(shifted, eps) * weight.float()).to(input.dtype)


@mutant("rmsnorm", "sglang#32807, vllm#48324")
def weight_bytes_reinterpreted(input, weight, eps):
    """An fp32 weight beside 16-bit rows is read as if it had the rows' dtype."""
    if weight.dtype != input.dtype:
        weight = weight.view(input.dtype)[: input.shape[-1]]
    return plain.rmsnorm(input, weight, eps)


@mutant("rmsnorm", "quack#115")
def comes_back_wider(input, weight, eps):
    """The result is fp32: the conversion back to the storage dtype is forgotten."""
    return plain.normalised(input.float(), weight, eps)
