"""One attempt: the candidate called on an example, and judged. No references and no mutants: there are thousands of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from difftest.run import stability
from difftest.run.call import Called, Tensors, call, call_all
from difftest.search.example import Example
from difftest.verdict import judge
from reference.arithmetic import evaluate
from reference.formats import bits


def reasons(example: Example, function: Callable, *, again: bool = False, batch_invariant: bool = False) -> list[str]:
    """Why the candidate differs on the example, a sentence each; none where it conforms. `again`: called again, and in parts."""
    inputs = example.inputs()
    called = call(example.case, function, inputs)
    more: Sequence[str] = ()
    if again and called.outputs:
        more = stability.check(example.case, function, inputs, called, batch_invariant).reasons
    return _judged(example, inputs, called, more)


def reasons_of_all(examples: Sequence[Example], function: Callable) -> list[list[str]]:
    """The reasons of each example, called in one turn where the function is in another process."""
    inputs = [example.inputs() for example in examples]
    called = call_all([example.case for example in examples], function, inputs)
    return [_judged(*each) for each in zip(examples, inputs, called, strict=True)]


def _judged(example: Example, inputs: Tensors, called: Called, more: Sequence[str] = ()) -> list[str]:
    found = [*called.faults, *more]
    if called.outputs and not _as_plain_torch(example, inputs, called.outputs):
        found += judge(example.case.operator, inputs, called.outputs, example.case.contract).reasons
    return found


def _as_plain_torch(example: Example, inputs: Tensors, outputs: Tensors) -> bool:
    """Whether every bit is that of the plain fp32 evaluation, which conforms: the judge takes longer to say so."""
    plain = evaluate(example.case.operator, inputs, example.case.contract)
    return all(torch.equal(bits(outputs[name].contiguous()), bits(plain[name].contiguous())) for name in outputs)
