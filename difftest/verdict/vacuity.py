"""Which trivial mutants a case cannot tell from the right answer. A case that lets one pass is no evidence."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from difftest.verdict.judge import Verdict, judge
from reference.exact.terms import NormTerms, Terms, terms
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors
from reference.trivial import trivial_mutants

# Far beyond what any contract's roundings (three of 2^-8 at most) and any form's fp32 errors come to.
RELATIVE, CANCELLING = 2.0**-5, 2.0**-15
FEW_ROWS = 8  # of a call, which mostly settle it; a regime's rows differ in turns of at most that many


def survivors(op: Operator, inputs: Tensors, contract: Contract) -> list[str]:
    """The trivial mutants whose outputs the verdict takes for the contract's own, but for the signs of zeros.

    Rows of zeros say of a kernel that it keeps a sign, and no more.
    """
    few = _first_rows(op, inputs)
    known, mutants = terms(op, few, contract, compensated=False), trivial_mutants(op, few, contract)
    left = [name for name, outputs in mutants.items() if not _beyond_doubt(known, outputs)]
    left = [name for name in left if _passes(judge(op, few, mutants[name], contract))]
    if not left or few[op.rows[0]].numel() == inputs[op.rows[0]].numel():  # what is wrong in some rows is wrong
        return left
    mutants = trivial_mutants(op, inputs, contract)
    return [name for name in left if _passes(judge(op, inputs, mutants[name], contract))]


def _first_rows(op: Operator, inputs: Tensors) -> dict[str, torch.Tensor]:
    """The inputs of a call of the first rows alone."""
    return {name: t if name in op.vectors else t.reshape(-1, t.shape[-1])[:FEW_ROWS] for name, t in inputs.items()}


def _passes(verdict: Verdict) -> bool:
    return verdict.conforms or (len(verdict.reasons) == 1 and verdict.statistics.get("zero_signs", 0) > 0)


def _beyond_doubt(known: Terms, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether outputs are so far off that no verdict takes them for right: a cheap look, False where it does not settle it.

    Another residual; or an element whose value is an ordinary number of the format, and which is farther from it than
    roundings of any contract and fp32 errors of any form reach.
    """
    value = known.unrounded()
    info = torch.finfo(known.storage)
    ordinary = (value.abs() > 2.0**-100) & (value.abs() < info.max / 2)
    allowed = RELATIVE * value.abs()
    if isinstance(known, NormTerms):
        if known.stored_sum is not None and bool((known.stored_sum.isfinite() & (known.stored_sum != outputs["residual"])).any()):
            return True
        ordinary &= known.finite & (known.mean_square > 2.0**-100) & (known.mean_square < 2.0**100)
        later = known.weight.abs()
    else:
        allowed = allowed + CANCELLING * (known.gate * known.up).abs()
        later = known.up.abs()
    allowed = allowed + 2 * info.smallest_normal * info.eps * (1 + later)
    apart = (outputs["output"].reshape(value.shape).double() - value).abs()
    return bool((ordinary & (apart > allowed)).any())
