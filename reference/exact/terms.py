"""What an operator's result is made of, in float64: read off its formula by an arithmetic that only takes notes.

The formula's exact numbers (inputs, and what a contract defines as fp32) are computed; its one inexact quantity, a row's
rstd or an activation's factor, is kept apart from the exact numbers that multiply it and the roundings between them.
The oracle rounds the terms, the attainable set widens them, a verdict divides by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from reference.arithmetic import Fp32, compute
from reference.exact.activations import ACTIVATIONS, SIGMOID, Activation
from reference.exact.bounds import FP32_MAX, FP32_TINY, U32, additions_in_sequence
from reference.operators import Operator, operator
from reference.operators.contract import Contract, check_contract
from reference.operators.declaration import Tensors
from reference.rounding import round_from_f64


@dataclass(frozen=True, slots=True)
class NormTerms:
    """A norm's rows, flattened to (rows, width), float64 unless said otherwise.

    `hidden` and `weight` (bias included) are exact: they are fp32 or storage values. `mean_square`, `shifted`
    (mean_square + eps) and `rstd` have shape (rows, 1). `sum32` (fp32) and `stored_sum` (storage dtype), in the call's
    shape, are input + residual for the operators that add, else None. `finite`: (rows, 1), no NaN or Inf in the row.
    `rounds_norm` is False for fp32 storage, where the contracts coincide. `biased`: a constant was added to the weight,
    `bias_rounds`: and not exactly. `eps` is an fp32 number. `additions`: the longest chain of additions that the sum of
    squares is allowed.
    """

    storage: torch.dtype
    shape: torch.Size
    sum32: torch.Tensor | None
    stored_sum: torch.Tensor | None
    hidden: torch.Tensor
    weight: torch.Tensor
    mean_square: torch.Tensor
    shifted: torch.Tensor
    rstd: torch.Tensor
    finite: torch.Tensor
    rounds_norm: bool
    biased: bool
    bias_rounds: bool
    eps: float
    additions: int

    @property
    def negative(self) -> torch.Tensor:
        """Where the result is negative, a zero's sign included; (rows, width)."""
        return torch.signbit(self.hidden) ^ torch.signbit(self.weight)

    def sign_is_free(self) -> torch.Tensor:
        """Where forms differ in the sign of a zero.

        A stored weight of -0 is +0 where a bias of 0 is added, as kernels do that serve Gemma's form too. A bias in an FMA,
        n * w + n, gives +0 where w + 1 is 0, or n = h * rstd.
        """
        if not self.biased:
            return ((self.weight == 0) & torch.signbit(self.weight)).expand_as(self.hidden)
        overflows = self.mean_square * self.hidden.shape[-1] > FP32_MAX / 2  # then rstd is 0
        return ((self.hidden * self.rstd).abs() < FP32_TINY) | (self.weight == 0) | overflows

    def of_sum(self, total: torch.Tensor, additions: int) -> NormTerms:
        """The same rows with another sum of squares, (rows, 1) float64, up to so many additions more."""
        mean_square = total / self.hidden.shape[-1]
        shifted = mean_square + self.eps
        rstd = 1.0 / torch.sqrt(shifted)
        return replace(self, mean_square=mean_square, shifted=shifted, rstd=rstd, additions=additions)

    def unrounded(self) -> torch.Tensor:
        """The value that the last rounding sees, in float64 without proof, (rows, width)."""
        inner = self.hidden * self.rstd
        if self.rounds_norm:
            inner = round_from_f64(inner, self.storage).double()
        return inner * self.weight


@dataclass(frozen=True, slots=True)
class GatedTerms:
    """A gated operator's rows, flattened to (rows, width), float64.

    The result is factor * gate * up. `factor` lies in [0, 1]: that of the activation named, at `point` (the gate; where
    the factor itself is rounded, the sigmoid's argument); `error` bounds its relative error, and `argument` is what its
    sigmoid is taken of. `gate` and `up` are exact, clamps and an added constant included; `biased` where there is one,
    `bias_rounds` where it was not added exactly. `clamps_at_zero`: a clamp's limit is 0, and the zero that it gives of any sign.
    `rounds_factor`, `rounds_activation`: rounded to storage before gate, before up multiplies; False for fp32 storage.
    """

    storage: torch.dtype
    shape: torch.Size
    activation: str
    parameters: tuple[float, ...]
    point: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    argument: torch.Tensor
    factor: torch.Tensor
    error: torch.Tensor
    rounds_factor: bool
    rounds_activation: bool
    biased: bool
    bias_rounds: bool
    clamps_at_zero: bool

    @property
    def negative(self) -> torch.Tensor:
        """Where the result is negative, a zero's sign included; (rows, width)."""
        return torch.signbit(self.gate) ^ torch.signbit(self.up)

    def sign_is_free(self) -> torch.Tensor:
        """Where forms differ in the sign of a zero.

        fma(g / 2, tanh, g / 2) and g / 2 + g / 2 * erf are +0, not -0, where the tail cancels to nothing and where g / 2
        vanishes, at -0 and among subnormals; act * up + act is +0 where up + 1 is 0.
        """
        free = (self.up == 0) & self.biased
        if self.analysis.cancelling_error is not None:
            free = free | (torch.signbit(self.gate) & ((self.factor < 4 * U32) | (self.gate > -FP32_TINY)))
        return free | ((self.gate == 0) & self.clamps_at_zero)

    @property
    def analysis(self) -> Activation:
        """What is proved of the activation."""
        return ACTIVATIONS[self.activation]

    def first_product(self) -> torch.Tensor:
        """The exact numbers that multiply the factor before anything is rounded."""
        if self.rounds_factor:
            return torch.ones_like(self.gate)
        return self.gate if self.rounds_activation else self.gate * self.up  # 24-bit significands: exact

    def later_factors(self) -> tuple[torch.Tensor, ...]:
        """The exact numbers that multiply what was rounded, one after another, each product rounded again."""
        if self.rounds_factor:
            return self.gate, self.up
        return (self.up,) if self.rounds_activation else ()

    def unrounded(self) -> torch.Tensor:
        """The value that the last rounding sees, in float64 without proof, (rows, width)."""
        if not self.later_factors():
            return self.gate * self.factor * self.up
        value = self.factor if self.rounds_factor else self.gate * self.factor
        for each in self.later_factors():
            value = round_from_f64(value, self.storage).double() * each
        return value


Terms = NormTerms | GatedTerms


def terms(op: str | Operator, inputs: Tensors, contract: Contract, *, compensated: bool = True) -> Terms:
    """The terms of `op`, of the type that its formula asks for. Raises ValueError for a contract of another operator.

    `compensated=False` sums squares in plain float64: width * 2^-53 at worst.
    """
    op = operator(op)
    check_contract(op, contract)
    dtypes = {name: inputs[name].dtype for name in op.inputs}
    result, *exact = compute(op, inputs, contract, _Notes(dtypes, op.rows[0])).values()
    product, storage = result.value, dtypes[op.rows[0]]
    sums = exact[0] if exact else None
    if isinstance(product.root, _MeanSquare):
        return _norm_terms(product, sums, storage, compensated)
    return _gated_terms(product, storage)


# --- notes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Exact:
    """Exact numbers: an fp32 tensor; `biased` where a constant was added, `bias_rounds` where that rounded."""

    value: torch.Tensor
    biased: bool = False
    bias_rounds: bool = False
    clamps_at_zero: bool = False


@dataclass(frozen=True, slots=True)
class _MeanSquare:
    """The mean square of exact rows, plus eps."""

    row: _Exact
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class _Factor:
    """An activation's factor at exact points."""

    activation: str
    point: _Exact
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Product:
    """The inexact root times exact factors; `stored[k]`: rounded to storage after the k-th factor (the 0th is the root)."""

    root: _MeanSquare | _Factor
    factors: tuple[_Exact, ...] = ()
    stored: tuple[bool, ...] = (False,)

    def times(self, factor: _Exact) -> _Product:
        return replace(self, factors=(*self.factors, factor), stored=(*self.stored, False))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored value, and the tensor of it where it is exact."""

    value: Any
    tensor: torch.Tensor | None = None


class _Notes(Fp32):
    def load(self, stored: Any) -> Any:
        if isinstance(stored, torch.Tensor):
            return _Exact(stored.float())
        if stored.tensor is not None:
            return replace(stored.value, value=stored.tensor.float())
        return replace(stored.value, stored=(*stored.value.stored[:-1], True))

    def store(self, value: Any, like: str | None = None) -> _Stored:
        return _Stored(value, super().store(value.value, like) if isinstance(value, _Exact) else None)

    def add(self, a: Any, b: Any) -> Any:
        if isinstance(a, _MeanSquare):
            return replace(a, eps=b)
        if isinstance(b, _Exact):
            return _Exact(a.value + b.value)
        total = a.value + b
        exact, wide = a.value.double(), total.double()
        rounds = bool(((wide - b != exact) | (wide - exact != b)).any())  # a NaN rounds
        return replace(a, value=total, biased=True, bias_rounds=rounds)

    def mul(self, a: Any, b: Any) -> Any:
        if isinstance(a, _Product):
            return a.times(b)
        if isinstance(b, _Product):
            return b.times(a)
        return _Exact(a.value * (b.value if isinstance(b, _Exact) else b))

    def minimum(self, a: _Exact, limit: float) -> _Exact:
        return replace(a, value=super().minimum(a.value, limit), clamps_at_zero=limit == 0)

    def clamp(self, a: _Exact, lowest: float, highest: float) -> _Exact:
        return replace(a, value=super().clamp(a.value, lowest, highest), clamps_at_zero=0 in (lowest, highest))

    def mean_square(self, row: _Exact) -> _MeanSquare:
        return _MeanSquare(row)

    def times_rsqrt(self, a: _Exact, b: _MeanSquare) -> _Product:
        return _Product(b).times(a)

    def sigmoid(self, a: _Exact) -> _Product:
        return _Product(_Factor(SIGMOID, a))

    def activate(self, activation: Callable, gate: _Exact, *parameters: float) -> _Product:
        return _Product(_Factor(activation.__name__, gate, parameters)).times(gate)


# --- terms from notes -------------------------------------------------------------------------------------------------


def _norm_terms(product: _Product, sums: _Stored | None, storage: torch.dtype, compensated: bool) -> NormTerms:
    root, (row, weight) = product.root, product.factors
    assert isinstance(root, _MeanSquare)
    assert row is root.row, "a norm divides the row whose squares it sums"
    width = row.value.shape[-1]
    hidden = row.value.double().reshape(-1, width)
    squares = hidden.square()
    plain = squares.sum(dim=-1, keepdim=True)
    finite = torch.isfinite(plain)  # squares of fp32 numbers cannot overflow float64
    total = torch.where(finite, compensated_sum(squares), plain) if compensated else plain
    mean_square = total / width
    shifted = mean_square + root.eps
    return NormTerms(
        storage=storage,
        shape=row.value.shape,
        sum32=sums.value.value if sums else None,
        stored_sum=sums.tensor if sums else None,
        hidden=hidden,
        weight=weight.value.double(),
        mean_square=mean_square,
        shifted=shifted,
        rstd=1.0 / torch.sqrt(shifted),
        finite=finite,
        rounds_norm=product.stored[1] and storage is not torch.float32,
        biased=weight.biased,
        bias_rounds=weight.bias_rounds,
        eps=root.eps,
        additions=additions_in_sequence(width),
    )


def _gated_terms(product: _Product, storage: torch.dtype) -> GatedTerms:
    root, (gate, up) = product.root, product.factors
    assert isinstance(root, _Factor)
    shape = gate.value.shape
    gates, ups = (each.value.double().reshape(-1, shape[-1]) for each in (gate, up))
    point = gates if root.point is gate else root.point.value.double().reshape(-1, shape[-1])
    argument, factor, error = ACTIVATIONS[root.activation].factor(point, *root.parameters)
    after_root, after_gate, _ = product.stored
    return GatedTerms(
        storage=storage,
        shape=shape,
        activation=root.activation,
        parameters=root.parameters,
        point=point,
        gate=gates,
        up=ups,
        argument=argument,
        factor=factor,
        error=error,
        rounds_factor=after_root,
        rounds_activation=after_gate and storage is not torch.float32,
        biased=up.biased,
        bias_rounds=up.bias_rounds,
        clamps_at_zero=gate.clamps_at_zero or up.clamps_at_zero,
    )


def compensated_sum(terms: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis, (rows, 1): a pairwise tree of TwoSums (Knuth) whose errors are added at the end."""
    high, low = terms, torch.zeros_like(terms)
    while high.shape[-1] > 1:
        if high.shape[-1] % 2:
            high = torch.nn.functional.pad(high, (0, 1))
            low = torch.nn.functional.pad(low, (0, 1))
        half = high.shape[-1] // 2
        a, b = high[..., :half], high[..., half:]
        total = a + b
        virtual = total - a
        error = (a - (total - virtual)) + (b - virtual)
        high, low = total, (low[..., :half] + low[..., half:]) + error
    return high + low
