"""The operators in plain PyTorch, under any rounding contract: one formula over two arithmetics, fp32 and float64.

Out of place, on whatever device the tensors are on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from reference.operators import Operator, operator
from reference.operators.contract import Contract, check_contract
from reference.operators.declaration import Role, Tensors
from reference.rounding import STORAGE_DTYPES, round_from_f64

Value = Any  # what an arithmetic computes with: tensors, or what it needs to know of them


def evaluate(op: str | Operator, inputs: Tensors, contract: Contract) -> dict[str, torch.Tensor]:
    """`op` under `contract`, computed in fp32 with the contract's roundings to the storage dtype T.

    The formulas stand in `reference.operators`. Every operation is torch's in fp32; where the contract stores a value,
    it is rounded to T. W1 with a weight of T multiplies two values of T and rounds once (their fp32 product is exact).
    With an fp32 weight beside a 16-bit input, or a bias, the product is one fp32 multiplication, and that is rounded
    to T.

    Shapes: rows (..., width), a tensor of gate and up (..., 2 * width), vectors (width,); zero rows are fine. Dtypes:
    fp32, fp16, bf16; all rows alike; a vector as the rows, or fp32. Nothing is mutated. Returns the outputs by name, of
    T. Raises KeyError for a missing tensor, TypeError for a dtype, ValueError for a shape or a contract of another
    operator. Source: FlashInfer 0.7.2's kernels for R0, W0 and S0; transformers' LlamaRMSNorm for R1, W1 and its MLP
    for S1.
    """
    return _outputs(op, inputs, contract, Fp32)


def evaluate_f64(op: str | Operator, inputs: Tensors, contract: Contract) -> dict[str, torch.Tensor]:
    """The float64 value that `contract` rounds last, for every output of `op`.

    What the contract rounds on the way is rounded here too, directly from float64: h (R1), the normalised value (W1),
    the activation (S1). Sums of exact numbers are fp32 by definition in every contract and stay so: input + residual,
    weight + bias; eps is the fp32 number nearest to the contract's. Everything else carries float64.
    For fp32 storage the contracts coincide: nothing but those sums is rounded before the end. `residual` is the fp32
    sum itself. Inputs, checks and errors as in `evaluate`; round the results with
    `reference.rounding.round_from_f64`, since torch's own conversion rounds twice.
    """
    outputs = _outputs(op, inputs, contract, Float64)
    return {name: stored.unrounded.double() for name, stored in outputs.items()}


def _outputs(op: str | Operator, inputs: Tensors, contract: Contract, kind: type[Fp32] | type[Float64]) -> dict[str, Any]:
    op = operator(op)
    check_inputs(op, inputs, contract)
    arithmetic = kind({name: inputs[name].dtype for name in op.inputs}, op.rows[0])
    return compute(op, inputs, contract, arithmetic)


def compute(op: Operator, inputs: Tensors, contract: Contract, arithmetic: Any) -> dict[str, Any]:
    """The operator's formula over `arithmetic`: its outputs by name, as the arithmetic stores them."""
    operands = [arithmetic.load(each) for each in op.split(inputs).values()]
    return dict(zip(op.outputs, op.formula(arithmetic, *operands, contract.in_fp32()), strict=True))


class Fp32:
    """fp32 as torch computes it: every operation rounded once. Values are fp32 tensors, stored ones have storage dtypes.

    `dtypes`: the tensors' dtypes by name; `rows`: whose dtype outputs and intermediate values are stored in.
    """

    def __init__(self, dtypes: Mapping[str, torch.dtype], rows: str = "input") -> None:
        self.dtypes, self.rows = dtypes, rows

    @property
    def storage(self) -> torch.dtype:
        """The dtype of the rows."""
        return self.dtypes[self.rows]

    def load(self, stored: torch.Tensor) -> Value:
        """A stored value, as an operand."""
        return stored.float()

    def store(self, value: Value, like: str | None = None) -> Any:
        """`value` rounded to the dtype of the rows, or of the tensor named."""
        return value.to(self.dtypes[like or self.rows])

    def add(self, a: Value, b: Value | float) -> Value:
        """a + b."""
        return a + b

    def mul(self, a: Value, b: Value | float) -> Value:
        """a * b."""
        return a * b

    def minimum(self, a: Value, limit: float) -> Value:
        """min(a, limit); a NaN stays one, as in torch.clamp."""
        return torch.clamp(a, max=limit)

    def clamp(self, a: Value, lowest: float, highest: float) -> Value:
        """a between the limits; a NaN stays one, as in torch.clamp."""
        return torch.clamp(a, lowest, highest)

    def mean_square(self, row: Value) -> Value:
        """sum(row^2) / width over the last axis, which stays with length 1."""
        return row.square().sum(dim=-1, keepdim=True) / row.shape[-1]

    def times_rsqrt(self, a: Value, b: Value) -> Value:
        """a / sqrt(b)."""
        return a * torch.rsqrt(b)

    def sigmoid(self, a: Value) -> Value:
        """1 / (1 + exp(-a)), from exp(-|a|), which cannot overflow."""
        decay = torch.exp(-a.abs())
        return torch.where(a < 0, decay, 1.0) / (1.0 + decay)

    def erfc(self, a: Value) -> Value:
        """1 - erf(a), where that does not cancel."""
        return torch.special.erfc(a)

    def activate(self, activation: Callable, gate: Value, *parameters: float) -> Value:
        """act(gate), as its formula says."""
        return activation(self, gate, *parameters)

    def biased(self, weight: Value, contract: Contract) -> Value:
        """weight + bias: a sum of fp32 numbers, or (`bias_in_fp32=False`) rounded to the weight's dtype first."""
        if contract.weight_bias == 0.0:
            return weight
        total = self.add(weight, contract.weight_bias)
        return total if contract.bias_in_fp32 else self.load(self.store(total, "weight"))

    def after_every_operation(self) -> Any:
        """The arithmetic that rounds every operation to storage; for fp32 storage, this one."""
        return self if self.storage is torch.float32 else EveryOperation(self)


class Unrounded:
    """What `Float64` stores: the value before its rounding, and the dtype that it is to be rounded to."""

    def __init__(self, unrounded: torch.Tensor, dtype: torch.dtype) -> None:
        self.unrounded, self.dtype = unrounded, dtype


class Float64(Fp32):
    """float64 with the contract's roundings. An fp32 tensor is an exact number; what is computed of it is float64.

    Only sums of exact numbers stay fp32, which every contract says of them.
    """

    def load(self, stored: torch.Tensor | Unrounded) -> Value:
        """An input as it is; a stored value rounded once; for fp32 storage not at all, since nothing but the end is."""
        if isinstance(stored, torch.Tensor):
            return stored.float()
        if stored.dtype is torch.float32:
            return stored.unrounded
        return round_from_f64(stored.unrounded.double(), stored.dtype).float()

    def store(self, value: Value, like: str | None = None) -> Unrounded:
        """`value`, and where it is to be rounded to."""
        return Unrounded(value, self.dtypes[like or self.rows])

    def mul(self, a: Value, b: Value | float) -> Value:
        """a * b in float64."""
        return a.double() * (b.double() if isinstance(b, torch.Tensor) else b)

    def mean_square(self, row: Value) -> Value:
        """As in fp32, in float64."""
        return super().mean_square(row.double())

    def times_rsqrt(self, a: Value, b: Value) -> Value:
        """a / sqrt(b) in float64."""
        return a.double() / torch.sqrt(b)

    def sigmoid(self, a: Value) -> Value:
        """As in fp32, in float64."""
        return super().sigmoid(a.double())

    def after_every_operation(self) -> Any:
        """As in fp32: an operation on stored values is fp32 arithmetic, rounded; a sigmoid is rounded from float64."""
        return self if self.storage is torch.float32 else EveryOperation(_Float64Functions(self.dtypes, self.rows))


class _Float64Functions(Float64):
    def mul(self, a: Value, b: Value | float) -> Value:
        return a * b


class EveryOperation:
    """An arithmetic whose operations round to storage what they take, as separate torch operations do.

    The last result is not rounded yet, so that its `store` sees it; a number that is no tensor is fp32, as in torch.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def load(self, stored: Any) -> Value:
        """As the inner arithmetic."""
        return self.inner.load(stored)

    def store(self, value: Value, like: str | None = None) -> Any:
        """As the inner arithmetic."""
        return self.inner.store(value, like)

    def add(self, a: Value, b: Value | float) -> Value:
        """a + b."""
        return self.inner.add(self._stored(a), self._stored(b))

    def mul(self, a: Value, b: Value | float) -> Value:
        """a * b."""
        return self.inner.mul(self._stored(a), self._stored(b))

    def minimum(self, a: Value, limit: float) -> Value:
        """min(a, limit)."""
        return self.inner.minimum(self._stored(a), limit)

    def clamp(self, a: Value, lowest: float, highest: float) -> Value:
        """a between the limits."""
        return self.inner.clamp(self._stored(a), lowest, highest)

    def sigmoid(self, a: Value) -> Value:
        """1 / (1 + exp(-a)), one operation."""
        return self.inner.sigmoid(self._stored(a))

    def activate(self, activation: Callable, gate: Value, *parameters: float) -> Value:
        """act(gate), each operation of its formula rounded."""
        return activation(self, gate, *parameters)

    def _stored(self, value: Value | float) -> Value | float:
        return value if isinstance(value, int | float) else self.load(self.store(value))


def eps_in_fp32(contract: Contract) -> float:
    """The fp32 number nearest to the contract's eps: what a kernel's float parameter holds."""
    return contract.in_fp32().eps


def biased_weight(weight: torch.Tensor, contract: Contract) -> torch.Tensor:
    """weight + bias in fp32: the sum of fp32 numbers, or (`bias_in_fp32=False`) rounded to the weight's dtype first."""
    return Fp32({"weight": weight.dtype}).biased(weight.float(), contract)


def check_inputs(op: Operator, inputs: Tensors, contract: Contract) -> None:
    """Raises what `evaluate` says for inputs or a contract that do not fit `op`."""
    check_contract(op, contract)
    for name in op.inputs:
        if name not in inputs:
            raise KeyError(f"{op.name} needs {', '.join(op.inputs)}; {name} is missing")
    first = op.rows[0]
    rows = inputs[first]
    if rows.dtype not in STORAGE_DTYPES:
        raise TypeError(f"{first} must be float32, float16 or bfloat16, not {rows.dtype}")
    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise ValueError(f"{first} needs rows of at least one element, got shape {tuple(rows.shape)}")
    shapes = op.shapes(rows.shape[:-1], op.width_of(inputs))
    for each in op.tensors:
        tensor = inputs[each.name]
        vector = each.role is Role.VECTOR
        if tensor.dtype is not rows.dtype and not (vector and tensor.dtype is torch.float32):
            wanted = f"{rows.dtype} or float32" if vector else f"{first}'s dtype {rows.dtype}"
            raise TypeError(f"{each.name} must {'be' if vector else 'have'} {wanted}, not {tensor.dtype}")
        if tuple(tensor.shape) != shapes[each.name]:
            wanted = "shape" if vector else f"{first}'s shape"
            raise ValueError(f"{each.name} must have {wanted} {shapes[each.name]}, not {tuple(tensor.shape)}")
