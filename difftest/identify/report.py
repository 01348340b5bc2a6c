"""An identification as text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from difftest.errors import BAD_USAGE, CONFORMS, DIFFERS, LACKING
from difftest.identify.hypotheses import bias_in_words
from difftest.identify.infer import MARGIN, Identification
from difftest.identify.order.fingerprint import TREE, UNSEEN, Order
from difftest.identify.tally import Tally
from difftest.report.table import Drawn, Table, terminal
from difftest.wording import counted
from reference.formats import of
from reference.operators.declaration import EPS

SCHEMA = "numba-kernels/identify/1"
SCHEMA_OF_ORDERS = "numba-kernels/identify-order/1"  # where nothing else was asked
LONGEST = 300  # characters of a reason, which may be a candidate's exception of many lines; the JSON has all of it


def shortened(reason: str) -> str:
    """A reason as one line of printable characters, cut off where it is too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in reason).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..."


def last_line(found: Identification) -> str:
    """`contract: CODE (…)`, `contract: none (…)`, or `contract: undecided (…)`."""
    if found.undecided:
        return f"contract: undecided ({shortened(found.why)})"
    if found.found is None:
        parts = [shortened(found.why)]
        if found.first:
            parts.append(f"first: {found.first}")
        return f"contract: none ({'; '.join(parts)})"
    parts = [f"fp32: {', '.join(found.among)} coincide"] if found.among else []
    if EPS in found.op.parameters:
        parts.append(eps_in_words(found))
    if found.op.vectors:
        parts.append(bias_in_words(found.found, found.dtype))
    parts += [parameter_in_words(found, name) for name, _ in found.found.parameters]
    if found.approximate:
        parts.append(f"activation approximate: {found.approximate} elements only a hardware tanh explains")
    if not parts:
        parts.append(f"{found.op.activation} in fp32")
    return f"contract: {found.found.code} ({'; '.join(parts)})"


def eps_in_words(found: Identification) -> str:
    """`eps 1e-06`, and whether it is the one that was passed."""
    assert found.found is not None
    text = f"eps {found.found.eps:g}"
    if found.found.eps != found.eps_passed:
        return f"{text}, not the {found.eps_passed:g} passed"
    return f"{text} whatever is passed" if found.listens is False else f"{text} as passed"


def parameter_in_words(found: Identification, name: str) -> str:
    """`limit 7 as passed`, and whether another value would be followed."""
    assert found.found is not None
    text = f"{name} {found.found.value(name):g}"
    if name not in found.listens_to:
        return f"{text}, no other is taken"
    return f"{text} as passed" if found.listens_to[name] else f"{text} whatever is passed"


def exit_status(found: Identification) -> int:
    """0 for a contract, 1 for none; undecided: 2, the widths asked for can't tell; 3: every width was refused."""
    if found.found is not None:
        return CONFORMS
    if found.undecided:
        return BAD_USAGE
    return LACKING if found.refused and not found.widths else DIFFERS


def show(screen: Console, found: Identification) -> None:
    """Tables of counts, remarks, what was refused, and the last line."""
    if found.codes:
        elements = found.codes[0].elements
        widths = ", ".join(map(str, found.widths))
        title = f"{found.op.name} {of(found.dtype).name}: {elements:,} elements, widths {widths}"
        screen.print(_table(title, "contract", [each.hypothesis.contract.code for each in found.codes], found.codes))
    if found.biases:
        labels = [bias_in_words(each.hypothesis.contract, found.dtype) for each in found.biases]
        screen.print(_table("Weight bias, under the contract found", "bias", labels, found.biases))
    if found.eps:
        labels = [f"{each.hypothesis.contract.eps:g}" for each in found.eps]
        screen.print(_table("eps, on rows of mean square 1e-7 to 1e-5", "eps", labels, found.eps))
    for remark in found.remarks:
        screen.print(f"  {shortened(remark)}", style="yellow", markup=False, soft_wrap=True)
    for width, reason in found.refused.items():
        screen.print(f"[yellow]skipped[/] width {width}: {escape(shortened(reason))}", soft_wrap=True)
    if found.found is None and found.nearest is not None and found.first is not None:
        screen.print(f"nearest: {found.nearest}; first contradiction: {found.first}", markup=False, soft_wrap=True)
    screen.print(last_line(found), markup=False, soft_wrap=True)


def show_orders(screen: Console, orders: Sequence[Order]) -> None:
    """The order of the sum at each width, and whether the batch changes it."""
    for found in orders:
        measured = f"; {found.asked:,} rows, {counted(found.calls, 'call')} of {found.rows}" if found.asked else ""
        known = f" [{found.identity}]" if found.state == TREE else ""
        screen.print(f"Order of the sum at width {found.width}{known}{measured}", style="bold", markup=False, soft_wrap=True)
        for line in found.lines:
            screen.print(f"  {shortened(line)}", markup=False, soft_wrap=True)
        if found.batches:
            same = [str(rows) for rows, what in found.batches.items() if what == "same"]
            if same:
                screen.print(f"  the same in calls of {' and of '.join(same)} rows", markup=False, soft_wrap=True)
            for rows, what in found.batches.items():
                if what != "same":
                    text = f"  another in calls of {counted(rows, 'row')}: {shortened(what)}"
                    screen.print(text, style="yellow", markup=False, soft_wrap=True)


def exit_status_of_orders(orders: Sequence[Order]) -> int:
    """0 where the order of the sum was found at some width, 2 where none can be seen, 3 where every width was refused."""
    if not orders:
        return LACKING
    return CONFORMS if any(found.state != UNSEEN for found in orders) else BAD_USAGE


def _table(title: str, what: str, labels: Sequence[str], tallies: Sequence[Tally]) -> Drawn:
    rows = tuple(
        (label, f"{each.agree:,}", f"{each.against:,}", f"{each.contradicting:,}")
        for label, each in zip(labels, tallies, strict=True)
    )
    counts = Table(title, (what, "decisive, agree", "decisive, contradict", "contradicting, of all"), rows)
    return terminal(counts, rows=["green" if each.fits else "" for each in tallies])


def document(found: Identification) -> dict[str, Any]:
    """Plain data; `contract` is None for none, `verdict` one of found, none, undecided."""
    contract = found.found
    numbers = contract.parameters if contract else ()
    parameters = {name: {"value": value, "as_passed": found.listens_to.get(name)} for name, value in numbers}
    return {
        "op": found.op.name,
        "dtype": of(found.dtype).name,
        "widths": found.widths,
        "verdict": "found" if contract else "undecided" if found.undecided else "none",
        "contract": contract.code if contract else None,
        "coincide": list(found.among),
        "eps": contract.eps if contract and EPS in found.op.parameters else None,
        "eps_passed": found.eps_passed,
        "eps_ignored": found.eps_ignored,
        **({"parameters": parameters} if parameters else {}),
        "weight_bias": contract.weight_bias if contract else None,
        "bias_in_fp32": contract.bias_in_fp32 if contract else None,
        "approximate": found.approximate,
        "why": found.why,
        "nearest": str(found.nearest) if found.nearest else None,
        "first_contradiction": str(found.first) if found.first else None,
        "margin": MARGIN,
        "codes": {each.hypothesis.contract.code: _counts(each) for each in found.codes},
        "biases": {bias_in_words(each.hypothesis.contract, found.dtype): _counts(each) for each in found.biases},
        "eps_candidates": {f"{each.hypothesis.contract.eps:g}": _counts(each) for each in found.eps},
        "remarks": found.remarks,
        "refused": {str(width): reason for width, reason in found.refused.items()},
        "line": last_line(found),
    }


def _counts(each: Tally) -> dict[str, int]:
    return {
        "elements": each.elements,
        "contradicting": each.contradicting,
        "agree": each.agree,
        "against": each.against,
    }
