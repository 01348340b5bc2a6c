"""The marked blocks of a page by name, and filling them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from difftest.pages import arguments, chain, exhaustive, forms, operators, orders, power, reliability, speed

BLOCKS: dict[str, Callable[[Path], str]] = {
    "arguments": arguments.arguments,
    "bench": speed.bench,
    "bench-plots": speed.both_plots,
    "chain": chain.chain,
    "chain-prefetch": chain.prefetch,
    "claims": operators.claims,
    "contract-cost": speed.contract_costs,
    "coverage": reliability.coverage,
    "emulator-speed": speed.emulator,
    "exhaustive": exhaustive.exhaustive,
    "faults": reliability.faults,
    "first-call": speed.first_calls,
    "floor": chain.floor,
    "forms": forms.forms,
    "ladder": speed.steps,
    "numba-own-tests": reliability.own_tests,
    "mutants": power.headline,
    "mutants-beyond": power.beyond,
    "mutants-by-check": power.matrices,
    "mutants-by-others": power.comparisons,
    "mutants-missed": power.survivors,
    "mutants-of-the-field": power.corpus,
    "operators": operators.operators,
    "orders": orders.orders,
    "regimes": operators.inputs,
    "profile": speed.profile,
    "sanitizers": reliability.sanitizers,
    "speed": speed.headline,
    "speed-plot": speed.width_plot,
    "tolerances": power.tolerances,
    "tuning": speed.tuning,
}
"""Name -> the block's text for the page that it stands on (links lead from there)."""

_MARK = re.compile(r"<!-- ([\w-]+):(start|end) -->")


def filled(page: Path, text: str) -> str:
    """The page with every marked block filled. ValueError, with the line, for an unknown name or marks that don't pair up."""
    parts, place, inside = [], 0, ""
    for mark in _MARK.finditer(text):
        name, side = mark.groups()
        where = f"{page.name}:{text.count(chr(10), 0, mark.start()) + 1}: {mark.group()}"
        if name not in BLOCKS:
            raise ValueError(f"{where}: no block has that name; there are {', '.join(BLOCKS)}")
        if inside != (name if side == "end" else ""):
            raise ValueError(f"{where} {f'inside of {inside}' if inside else 'has no start'}")
        if side == "start":
            parts += [text[place : mark.end()], "\n", BLOCKS[name](page)]
        place, inside = (mark.end(), name) if side == "start" else (mark.start(), "")
    if inside:
        raise ValueError(f"{page.name}: <!-- {inside}:start --> has no end")
    return "".join([*parts, text[place:]])


def names(text: str) -> set[str]:
    """The names of the blocks in a page's text."""
    return {mark.group(1) for mark in _MARK.finditer(text)}
