"""Which trivial mutants a case cannot tell from the right answer. A case that lets one pass is no evidence."""

from __future__ import annotations

from difftest.verdict.judge import Verdict, judge
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors
from reference.trivial import trivial_mutants


def survivors(op: Operator, inputs: Tensors, contract: Contract) -> list[str]:
    """The trivial mutants whose outputs the verdict takes for the contract's own, but for the signs of zeros.

    Rows of zeros say of a kernel that it keeps a sign, and no more.
    """
    mutants = trivial_mutants(op, inputs, contract)
    verdicts = {name: judge(op, inputs, outputs, contract) for name, outputs in mutants.items()}
    return [name for name, verdict in verdicts.items() if verdict.conforms or _only_signs(verdict)]


def _only_signs(verdict: Verdict) -> bool:
    return len(verdict.reasons) == 1 and verdict.statistics.get("zero_signs", 0) > 0
