"""One attempt: the candidate called on an example, and judged. No references and no mutants: there are thousands of these."""

from __future__ import annotations

from collections.abc import Callable

import torch

from difftest.run import stability
from difftest.run.call import Tensors, call
from difftest.search.example import Example
from difftest.verdict import judge
from reference.arithmetic import evaluate
from reference.formats import bits


def reasons(example: Example, function: Callable, *, again: bool = False, batch_invariant: bool = False) -> list[str]:
    """Why the candidate differs on the example, a sentence each; none where it conforms. `again`: called again, and in parts."""
    case, inputs = example.case, example.inputs()
    called = call(case, function, inputs)
    found = list(called.faults)
    if again and called.outputs:
        found += stability.check(case, function, inputs, called, batch_invariant).reasons
    if called.outputs and not _as_plain_torch(example, inputs, called.outputs):
        found += judge(case.operator, inputs, called.outputs, case.contract).reasons
    return found


def _as_plain_torch(example: Example, inputs: Tensors, outputs: Tensors) -> bool:
    """Whether every bit is that of the plain fp32 evaluation, which conforms: the judge takes longer to say so."""
    plain = evaluate(example.case.operator, inputs, example.case.contract)
    return all(torch.equal(bits(outputs[name].contiguous()), bits(plain[name].contiguous())) for name in outputs)
