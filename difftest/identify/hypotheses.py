"""Hypotheses about an implementation, each a function and a contract, and which outputs each allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from reference.exact.attainable import Attainable, Ends, activation_interval, attainable, gated_ends, gated_judged
from reference.exact.terms import GatedTerms, terms
from reference.formats import of
from reference.operators import OPERATORS, Operator
from reference.operators.contract import Contract, contract_of, corners
from reference.operators.declaration import Tensors

# PTX ISA, tanh.approx.f32: largest relative error about 2^-11; a tenth more for the "about". FlashInfer's tanh-gelu is
# made of it, and CuTe kernels make sigmoid(x) of it as (1 + tanh(x / 2)) / 2.
HARDWARE_TANH = 1.1 * 2.0**-11

# What libraries put under the root: the usual three, none at all, and F.rms_norm's default of finfo(dtype).eps.
EPS_CANDIDATES = (1e-6, 1e-5, 1e-8, 0.0, *(torch.finfo(t).eps for t in (torch.float16, torch.bfloat16, torch.float32)))


@dataclass(frozen=True, slots=True)
class Allowed:
    """For every output element the lowest and the highest value allowed; True in `judged` where that means something.

    True in `nan` where gate or up is NaN, so that the output must be; it may have no axes.
    """

    lowest: torch.Tensor
    highest: torch.Tensor
    judged: torch.Tensor
    nan: torch.Tensor

    def contains(self, output: torch.Tensor) -> torch.Tensor:
        """Where `output` is allowed, or nothing is judged."""
        within = (output >= self.lowest) & (output <= self.highest)
        return torch.where(self.nan, output.isnan(), within | ~self.judged)

    def apart_from(self, other: Allowed) -> torch.Tensor:
        """Where the two have no value in common."""
        return ((self.highest < other.lowest) | (other.highest < self.lowest)) & self.judged & other.judged


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """`op` is what is computed: not always the operator asked about, since a bias may be missing or another function in
    its place. `hardware_tanh`: the activation may be off by what tanh.approx is off by.
    """

    op: Operator
    contract: Contract
    hardware_tanh: bool = False

    def allows(self, inputs: Tensors) -> dict[str, Allowed]:
        """The allowed values by output name, each in the output's shape and dtype."""
        nan = _nan_from_operands(self.op, inputs)
        if not self.hardware_tanh:
            found = attainable(self.op, inputs, self.contract)
            return {n: Allowed(found.lowest(n), found.highest(n), found.judged[n], nan) for n in self.op.outputs}
        found_terms = terms(self.op, inputs, self.contract)
        assert isinstance(found_terms, GatedTerms)
        lowest, highest, vanishes = activation_interval(found_terms)
        # act = gate * (1 + tanh) / 2, and tanh = 2 * factor - 1. Where the factor is rounded, the interval is its own.
        scale = 1.0 if found_terms.rounds_factor else found_terms.gate.abs()
        slack = scale * (found_terms.factor - 0.5).abs() * HARDWARE_TANH
        ends = gated_ends(found_terms, Ends(torch.clamp(lowest - slack, min=0.0), highest + slack, vanishes))
        made = Attainable({"output": Ends(*(each.reshape(found_terms.shape) for each in ends))}, {})
        low, high, judged = made.lowest(), made.highest(), gated_judged(found_terms).reshape(found_terms.shape)
        return {"output": Allowed(low, high, judged, nan)}

    def __str__(self) -> str:
        return self.contract.code


def _nan_from_operands(op: Operator, inputs: Tensors) -> torch.Tensor:
    """Where gate or up of an element is NaN; False for the norms, whose probes have no NaN."""
    if op.activation is None:
        return torch.tensor(False, device=inputs[op.rows[0]].device)
    values = op.split(inputs)
    return torch.stack([values[role].isnan() for role in op.roles]).any(0)


def codes(op: Operator, dtype: torch.dtype) -> list[Hypothesis]:
    """The operator's contracts; for fp32 storage the first alone, since they coincide there."""
    found = [Hypothesis(op, contract) for contract in corners(op)]
    return found[:1] if dtype is torch.float32 else found


def biases(op: Operator, code: str, dtype: torch.dtype) -> list[Hypothesis]:
    """The ways to treat the weight under `code`: as it is, plus 1 in fp32, plus 1 in the storage dtype; the own first."""
    if not op.vectors:
        return []
    found = []
    for other in sorted((o for o in OPERATORS.values() if o.formula == op.formula), key=lambda o: o.weight_bias):
        own = Hypothesis(other, contract_of(other, code))
        found.append(own)
        if other.weight_bias and dtype is not torch.float32:
            found.append(replace(own, contract=replace(own.contract, bias_in_fp32=False)))
    return sorted(found, key=lambda h: h.op != op)


def with_values(hypothesis: Hypothesis, **values: float) -> Hypothesis:
    """The same hypothesis with other values of its contract's parameters."""
    return replace(hypothesis, contract=hypothesis.contract.with_values(values))


def other_functions(op: Operator, dtype: torch.dtype) -> list[Hypothesis]:
    """The other activations of the same tensors under every contract: what an implementation may compute by mistake."""
    others = [o for o in OPERATORS.values() if o.activation and o.tensors == op.tensors and o.activation != op.activation]
    return [hypothesis for other in others for hypothesis in codes(other, dtype)]


def bias_in_words(contract: Contract, dtype: torch.dtype) -> str:
    """`weight bias 0`, `weight bias 1 in fp32`."""
    if contract.weight_bias == 0.0:
        return "weight bias 0"
    where = "fp32" if contract.bias_in_fp32 else of(dtype).name
    return f"weight bias {contract.weight_bias:g} in {where}"
