"""The page "Who rounds where", made from a matrix's document and the table of claims."""

from __future__ import annotations

from typing import Any

from difftest.matrix import tables
from difftest.report.table import Table, markdown
from reference.providers.claims import CLAIMS

_INTRODUCTION = """# Who rounds where

The same operator rounds at different places in different libraries, and every one of them passes a tolerance of 1e-2.
This page says which contract each implementation was found to follow, how far they are from each other, and how far from
the truth. `python cli.py docs` makes it from {source}; do not edit it by hand.

| code | the value that is normalised | code | the weight multiply |
|---|---|---|---|
| `R0` | the fp32 sum input + residual | `W0` | `(h * rstd) * w` in fp32, rounded once |
| `R1` | that sum, rounded to the storage dtype | `W1` | `h * rstd` rounded to the storage dtype, times `w`, rounded again |

`S0`: `act(gate) * up` in fp32, rounded once. `S1`: `act(gate)` rounded to the storage dtype first.
"""

_HOW = """## How to read the tables

A contract is identified from outputs: no element contradicts the one named, and at least 16 contradict every other
(`difftest/identify/infer.py`). "tanh ≈": the activation is off by what a hardware tanh is off by. The truth is the
operator in exact arithmetic on its inputs, without any inner rounding; an error is signed and in ULP of the output dtype
in the truth's binade, the bias is its mean. "max, in values" counts representable values to the correctly rounded one.
"Right in its contract" is the share of elements that are the correctly rounded value of the contract that the
implementation follows itself: what is missing there is order of summation and approximation, not the contract.
"""


def page(document: dict[str, Any], source: str) -> str:
    """The page, in Markdown."""
    where = document["environment"]
    versions = [f"{name} {each['version']}" for name, each in document["providers"].items() if not each["unavailable"]]
    measured = (
        f"Measured on {document['date']}, {where['device']}, CUDA {where['cuda']}, Python {where['python']}, "
        f"torch {where['torch']}, in {document['seconds']:g} s: {', '.join(versions)}.\n"
    )
    parts = [_INTRODUCTION.format(source=source), measured, "## Contracts\n", markdown(tables.contracts(document))]
    found = tables.findings(document)
    if found:
        parts.append("## Findings\n\n" + "\n".join(f"- {text}" for text in found) + "\n")
    parts += ["## Read in the sources\n", _claims(document), _HOW]
    for group in document["groups"]:
        parts.append(f"## {group['op']}, {group['dtype']}\n")
        parts += [markdown(each) for each in (tables.distances(group), tables.errors(group)) if each.rows]
    left_out = tables.left_out(document)
    if left_out:
        parts.append("## Left out\n\n" + "\n".join(f"- {text}" for text in left_out) + "\n")
    return "\n".join(parts)


def _claims(document: dict[str, Any]) -> str:
    """The table of what was read, with whether the outputs bear it out."""
    rows = []
    for claim in CLAIMS:
        states: dict[str, bool] = {}
        for group in document["groups"]:
            for name, member in group["providers"].items():
                if group["op"] in claim.ops and _is_of(name, claim.library) and member["keeps_claim"] is not None:
                    states[group["op"]] = states.get(group["op"], True) and member["keeps_claim"]
        seen = "not measured here" if not states else "yes" if all(states.values()) else "no"
        unseen = [op for op in claim.ops if op not in states]
        if states and unseen:
            seen += f"; {', '.join(unseen)} not measured here"
        note = claim.note + ("; " if claim.note and not claim.bias_in_fp32 else "")
        note += "" if claim.bias_in_fp32 else "the bias is added in the weight's dtype"
        rows.append((claim.library, ", ".join(claim.ops), claim.code, seen, claim.source, note))
    heads = ("library", "operators", "contract", "outputs agree", "source", "note")
    return markdown(Table("Claims", heads, tuple(rows), names=len(heads)))


# Providers whose claim is another row of the table than their own name.
_LIBRARY = {"torch-rmsnorm": "torch", "flashinfer-cuda": "flashinfer", "flashinfer-cute": "flashinfer", "torch": ""}


def _is_of(provider: str, library: str) -> bool:
    return _LIBRARY.get(provider, provider) == library
