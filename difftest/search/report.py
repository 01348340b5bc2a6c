"""What a search tells: how much of it there was, and each failure as small as it got, its values bit by bit."""

from __future__ import annotations

import re
from typing import Any

import torch

from difftest.cases.given import Values, in_words
from difftest.report.terminal import describe
from difftest.search.run import Finding, Group, Searched
from difftest.wording import counted
from reference.formats import Format

MOST_RUNS = 8  # runs of equal values of one tensor that are shown; the saved case has all


def lines(searched: Searched) -> list[str]:
    """One line on how far the search came, for each operator and dtype that was searched."""
    found = []
    for group in searched.groups:
        if group.swept or group.combined:
            widths = f"{min(group.swept, searched.last):,} of {searched.last:,} widths in {counted(group.swept, 'case')}"
            done = f"{widths}, {counted(group.combined, 'combination')} of dimensions"
            ended = "a failure" if group.finding else "no failure"
            found.append(f"searched {group.op} {group.dtype}: {done}, {ended}")
    return found


def finding_lines(finding: Finding) -> list[str]:
    """A failure: what it was shrunk from, what is left, why it differs, and its values."""
    case = finding.case
    how = f"{counted(finding.calls, 'call')}{'' if finding.whole else ', out of time'}"
    found = [f"Shrunk: {describe(case)}", f"  from {describe(finding.found)} ({how})"]
    found += [f"  {reason}" for reason in finding.reasons]
    formats = {name: case.weight_format if name in case.operator.vectors else case.format for name in case.operator.inputs}
    words = dict(case.given.words) if isinstance(case.given, Values) else {n: in_words(t) for n, t in case.inputs().items()}
    return found + [f"  {name}: {shown(text, formats[name])}" for name, text in words.items()]


def shown(words: str, own: Format) -> str:
    """Runs of values as text, each word with its value: `3f80*3 (1), c000 (-2)`."""
    runs = words.split()
    parts = [f"{run} ({_value(run, own):.9g})" for run in runs[:MOST_RUNS]]
    return ", ".join(parts) + (f", ... {counted(len(runs) - MOST_RUNS, 'more run')}" if len(runs) > MOST_RUNS else "")


def to_json(searched: Searched) -> dict[str, Any]:
    """Plain data."""
    return {
        "last": searched.last,
        "seconds": round(searched.seconds, 3),
        "groups": [_group(group) for group in searched.groups],
    }


def _group(group: Group) -> dict[str, Any]:
    finding = group.finding and {
        "case": group.finding.case.to_json(),
        "reasons": list(group.finding.reasons),
        "found": group.finding.found.to_json(),
        "calls": group.finding.calls,
        "whole": group.finding.whole,
    }
    return {"op": group.op, "dtype": group.dtype, "swept": group.swept, "combined": group.combined, "finding": finding}


def _value(run: str, own: Format) -> float:
    word = int(re.split(r"\*", run)[0], 16)
    signed = word - (1 << 8 * own.itemsize) if word >> (8 * own.itemsize - 1) else word
    return torch.tensor(signed, dtype=own.bits).view(own.torch).item()
