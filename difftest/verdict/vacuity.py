"""Which trivial mutants a case cannot tell from the right answer. A case that lets one pass is no evidence."""

from __future__ import annotations

from difftest.verdict.judge import judge
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors
from reference.trivial import trivial_mutants


def survivors(op: Operator, inputs: Tensors, contract: Contract) -> list[str]:
    """The trivial mutants whose outputs the verdict takes for the contract's own."""
    mutants = trivial_mutants(op, inputs, contract)
    return [name for name, outputs in mutants.items() if judge(op, inputs, outputs, contract).conforms]
