"""The operators in plain PyTorch, under any rounding contract, with every rounding step written out.

Out of place, on whatever device the tensors are on. Imports torch and this package's contracts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

import torch

from reference.contracts import Contract, check_contract
from reference.operators import Operator, operator
from reference.rounding import STORAGE_DTYPES, round_from_f64

Tensors = Mapping[str, torch.Tensor]


def evaluate(op: str | Operator, inputs: Tensors, contract: Contract) -> dict[str, torch.Tensor]:
    """`op` under `contract`, computed in fp32 with the contract's roundings to the storage dtype T.

    add_norm: s = fp32(input) + fp32(residual); residual' = T(s); h = s (R0) or fp32(residual') (R1).
    norm: h = fp32(input). Then rstd = rsqrt(sum(h * h) / width + eps), w = fp32(weight) + bias, and
    output = T(h * rstd * w) (W0), or T(fp32(T(h * rstd)) * w) (W1).
    gated: a = act(fp32(gate)); output = T(a * fp32(up)) (S0), or T(fp32(T(a)) * fp32(up)) (S1).

    W1 with a weight of T multiplies two values of T and rounds once (their fp32 product is exact). With an fp32 weight
    beside a 16-bit input, or a bias, the product is one fp32 multiplication, and that is rounded to T.

    Shapes: input and residual (..., width), gated input (..., 2 * width), weight (width,); zero rows are fine. Dtypes:
    fp32, fp16, bf16; residual as input; weight as input, or fp32. Nothing is mutated. Returns `output`, and for
    add_norm `residual`, both of T. Raises KeyError for a missing tensor, TypeError for a dtype, ValueError for a shape
    or a contract of another operator. Source: FlashInfer 0.7.2's kernels for R0, W0 and S0; transformers' LlamaRMSNorm
    for R1, W1 and its MLP for S1.
    """
    op = operator(op)
    _check(op, inputs, contract)
    storage = inputs["input"].dtype
    if op.family == "gated":
        gate, up = _halves(inputs["input"].float())
        activated = activation(op)(gate)
        if contract.rounds_activation:
            activated = activated.to(storage).float()
        return {"output": (activated * up).to(storage)}

    outputs: dict[str, torch.Tensor] = {}
    hidden = inputs["input"].float()
    if op.family == "add_norm":
        hidden = hidden + inputs["residual"].float()
        outputs["residual"] = hidden.to(storage)
        if contract.rounds_sum:
            hidden = outputs["residual"].float()
    mean_square = hidden.square().sum(dim=-1, keepdim=True) / hidden.shape[-1]
    rstd = torch.rsqrt(mean_square + eps_in_fp32(contract))
    normalised = hidden * rstd
    if contract.rounds_norm:
        normalised = normalised.to(storage).float()
    outputs["output"] = (normalised * biased_weight(inputs["weight"], contract)).to(storage)
    return {name: outputs[name] for name in op.outputs}


def evaluate_f64(op: str | Operator, inputs: Tensors, contract: Contract) -> dict[str, torch.Tensor]:
    """The float64 value that `contract` rounds last, for every output of `op`.

    What the contract rounds on the way is rounded here too, directly from float64: h (R1), the normalised value (W1),
    the activation (S1). Two sums are fp32 by definition in every contract and stay so: input + residual, and
    weight + bias; eps is the fp32 number nearest to the contract's. Everything else carries float64.
    For fp32 storage the contracts coincide: nothing but those sums is rounded before the end. `residual` is the fp32
    sum itself. Inputs, checks and errors as in `evaluate`; round the results with
    `reference.rounding.round_from_f64`, since torch's own conversion rounds twice.
    """
    op = operator(op)
    _check(op, inputs, contract)
    storage = inputs["input"].dtype
    if op.family == "gated":
        gate, up = _halves(inputs["input"].double())
        activated = activation(op)(gate)
        if contract.rounds_activation and storage is not torch.float32:
            activated = round_from_f64(activated, storage).double()
        return {"output": activated * up}

    outputs: dict[str, torch.Tensor] = {}
    hidden = inputs["input"].double()
    if op.family == "add_norm":
        total = inputs["input"].float() + inputs["residual"].float()
        outputs["residual"] = total.double()
        hidden = total.to(storage).double() if contract.rounds_sum else total.double()
    mean_square = hidden.square().sum(dim=-1, keepdim=True) / hidden.shape[-1]
    normalised = hidden / torch.sqrt(mean_square + eps_in_fp32(contract))
    if contract.rounds_norm and storage is not torch.float32:
        normalised = round_from_f64(normalised, storage).double()
    outputs["output"] = normalised * biased_weight(inputs["weight"], contract).double()
    return {name: outputs[name] for name in op.outputs}


def eps_in_fp32(contract: Contract) -> float:
    """The fp32 number nearest to the contract's eps: what a kernel's float parameter holds."""
    return struct.unpack("f", struct.pack("f", contract.eps))[0]


def biased_weight(weight: torch.Tensor, contract: Contract) -> torch.Tensor:
    """weight + bias in fp32: the sum of fp32 numbers, or (`bias_in_fp32=False`) rounded to the weight's dtype first."""
    if contract.weight_bias == 0.0:
        return weight.float()
    biased = weight.float() + contract.weight_bias
    return biased if contract.bias_in_fp32 else biased.to(weight.dtype).float()


def silu(gate: torch.Tensor) -> torch.Tensor:
    """gate * sigmoid(gate), with sigmoid from exp(-|gate|), which cannot overflow."""
    return gate * _sigmoid(gate)


def gelu(gate: torch.Tensor) -> torch.Tensor:
    """gate * erfc(-gate / sqrt(2)) / 2: erfc keeps the negative tail that 1 + erf cancels away."""
    return 0.5 * gate * torch.special.erfc(gate * -math.sqrt(0.5))


def gelu_tanh(gate: torch.Tensor) -> torch.Tensor:
    """gate * (1 + tanh(u)) / 2 = gate * sigmoid(2u), u = sqrt(2/pi) (gate + 0.044715 gate^3): no cancellation."""
    return gate * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * gate * (1.0 + 0.044715 * gate.square()))


def activation(op: str | Operator) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function that a gated operator applies to its gate, in the precision of its argument."""
    op = operator(op)
    if op.activation is None:
        raise ValueError(f"{op.name} has no activation")
    return {"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}[op.activation]


def _sigmoid(value: torch.Tensor) -> torch.Tensor:
    decay = torch.exp(-value.abs())
    return torch.where(value < 0, decay, 1.0) / (1.0 + decay)


def _halves(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    width = rows.shape[-1] // 2
    return rows[..., :width], rows[..., width:]


def _check(op: Operator, inputs: Tensors, contract: Contract) -> None:
    check_contract(op, contract)
    for name in op.inputs:
        if name not in inputs:
            raise KeyError(f"{op.name} needs {', '.join(op.inputs)}; {name} is missing")
    rows = inputs["input"]
    if rows.dtype not in STORAGE_DTYPES:
        raise TypeError(f"input must be float32, float16 or bfloat16, not {rows.dtype}")
    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise ValueError(f"input needs rows of at least one element, got shape {tuple(rows.shape)}")
    if op.family == "gated":
        if rows.shape[-1] % 2:
            raise ValueError(f"input of {op.name} holds gate and up side by side: {rows.shape[-1]} is odd")
        return
    if op.family == "add_norm":
        residual = inputs["residual"]
        if residual.dtype is not rows.dtype:
            raise TypeError(f"residual must have input's dtype {rows.dtype}, not {residual.dtype}")
        if residual.shape != rows.shape:
            raise ValueError(f"residual must have input's shape {tuple(rows.shape)}, not {tuple(residual.shape)}")
    weight = inputs["weight"]
    if weight.dtype not in (rows.dtype, torch.float32):
        raise TypeError(f"weight must be {rows.dtype} or float32, not {weight.dtype}")
    if weight.shape != rows.shape[-1:]:
        raise ValueError(f"weight must have shape {tuple(rows.shape[-1:])}, not {tuple(weight.shape)}")
