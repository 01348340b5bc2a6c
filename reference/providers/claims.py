"""Which library rounds where: every claim that the provider files make, for spellings of contracts and the pages."""

from __future__ import annotations

from reference.operators import Operator, operator
from reference.providers import (
    flashinfer,
    huggingface,
    liger,
    quack,
    sglang,
    tensorrt_llm,
    torch_compile,
    torch_eager,
    triton,
    vllm,
)
from reference.providers.claim import Claim, find

CLAIMS: tuple[Claim, ...] = (
    *flashinfer.CLAIMS,
    *sglang.CLAIMS,
    *quack.CLAIMS,
    *tensorrt_llm.CLAIMS,
    *torch_eager.CLAIMS,
    *torch_compile.CLAIMS,
    *huggingface.CLAIMS,
    *liger.CLAIMS,
    *vllm.CLAIMS,
    *triton.CLAIMS,
)


def claim(library: str, op: str | Operator) -> Claim | None:
    """What `library` claims for `op`, or None when it has no such operator, or is not in the table."""
    return find(CLAIMS, library, op)


def libraries(op: str | Operator) -> tuple[str, ...]:
    """The libraries with a claim for `op`, in the table's order."""
    name = operator(op).name
    return tuple(dict.fromkeys(each.library for each in CLAIMS if name in each.ops))
