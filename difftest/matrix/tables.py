"""A matrix's document as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from difftest.report import table
from difftest.report.table import Table
from difftest.verdict.truth import LEVELS
from difftest.wording import counted, share


def tables(document: dict[str, Any]) -> list[Table]:
    """Contracts, then for each operator and dtype the distances and the errors."""
    found = [contracts(document)]
    for group in document["groups"]:
        found += [each for each in (distances(group), errors(group)) if each.rows]
    return found


def contracts(document: dict[str, Any]) -> Table:
    """Who rounds where: an implementation a row, an operator a column."""
    ops = list(dict.fromkeys(group["op"] for group in document["groups"]))
    rows = []
    for name in document["providers"]:
        codes = [_contract(document, name, op) for op in ops]
        if any(code != "-" for code in codes):
            rows.append((name, *codes))
    return Table("Contracts, as identified from outputs", ("implementation", *ops), tuple(rows))


def _contract(document: dict[str, Any], name: str, op: str) -> str:
    by_dtype = {}
    for group in document["groups"]:
        if group["op"] == op and name in group["providers"]:
            by_dtype[group["dtype"]] = in_words(group["providers"][name])
    by_dtype = {dtype: text for dtype, text in by_dtype.items() if text != "-"}
    if not by_dtype:
        return "-"
    if len(set(by_dtype.values())) == 1:
        return next(iter(by_dtype.values()))
    return ", ".join(f"{dtype} {text}" for dtype, text in by_dtype.items())


def in_words(member: dict[str, Any]) -> str:
    """`R0W0`, `none`, `S0 (tanh ≈)`, `R1W1 (eps 1e-05)`, `W0, claims W1`; `failed`; `-` where it was not asked."""
    identified = member["identified"]
    if identified is None:
        return "failed" if member["failed"] else "-"
    if identified["contract"] is None:
        return str(identified["verdict"])
    notes = []
    if identified["approximate"]:
        notes.append("tanh ≈")
    if identified["eps_ignored"]:
        notes.append(f"eps {identified['eps']:g}")
    if identified["bias_in_fp32"] is False:
        notes.append("bias rounded")
    text = identified["contract"] + (f" ({', '.join(notes)})" if notes else "")
    return text + (f", claims {member['claims']}" if member["keeps_claim"] is False else "")


def distances(group: dict[str, Any]) -> Table:
    """Share of elements that differ and the largest distance, for every pair."""
    known = {}
    for pair in group["pairs"]:
        output = pair["output"]
        if output["elements"]:
            text = f"{share(output['share'])} ({output['max_ulp']:,})"
            if output["class_mismatches"]:
                text += f" +{output['class_mismatches']:,} class"
            if pair.get("residual", {}).get("mismatches"):
                text += f", residual {pair['residual']['mismatches']:,}"
            known[pair["a"], pair["b"]] = known[pair["b"], pair["a"]] = text
    names = [name for name in group["providers"] if any(name in pair for pair in known)]
    rows = [
        (f"{a} ({in_words(group['providers'][a])})", *["·" if a == b else known.get((a, b), "-") for b in names]) for a in names
    ]
    title = f"{group['op']}, {group['dtype']}: elements that differ (largest distance in ULP)"
    return Table(title, ("", *names), tuple(rows))


def errors(group: dict[str, Any]) -> Table:
    """Errors of each against the truth, which has no inner rounding, and the share that is right in its own contract."""
    shown = [level for level in LEVELS if level in (0.5, 0.99, 0.999, 1.0)]
    rows = []
    for name, member in group["providers"].items():
        found, own = member["errors"], member["errors_in_contract"]
        if not found:
            continue
        rows.append(
            (
                f"{name} ({in_words(member)})" + (" outlier" if name in group["outliers"] else ""),
                f"{found['mean']:+.4f}",
                *[f"{found['quantiles'][str(level)]:.4g}" for level in shown],
                f"{found['max_steps']:,}",
                share(found["right_share"]),
                share(own["right_share"]) if own else "-",
            )
        )
    heads = ["max" if level == 1.0 else f"p{100 * level:g}" for level in shown]
    columns = ("", "bias", *heads, "max, in values", "right", "right in its contract")
    return Table(f"{group['op']}, {group['dtype']}: error against the truth, in ULP", columns, tuple(rows))


def findings(document: dict[str, Any]) -> list[str]:
    """A sentence each: outliers, claims that do not hold, failures, and what was left out."""
    found = []
    for group in document["groups"]:
        where = f"{group['op']} {group['dtype']}"
        found += [f"{where}: {text}" for text in group["outliers"].values()]
        for name, member in group["providers"].items():
            if member["keeps_claim"] is False:
                found.append(f"{where}: {name} claims {member['claims']}; {member['identified']['line']}")
            for reason, what in member["failed"].items():
                found.append(f"{where}: {name} failed: {reason} ({counted(len(what), 'call')}, the first: {what[0]})")
    return found


def left_out(document: dict[str, Any]) -> list[str]:
    """A sentence each: what could not run, or was refused, and why."""
    found = []
    for name, provider in document["providers"].items():
        if provider["unavailable"]:
            found.append(f"{name}: {provider['unavailable']}")
        elif provider["not_run"]:
            found.append(f"{name}: {counted(provider['not_run'], 'call')} not started")
    reasons: dict[tuple[str, str], list[str]] = {}
    for group in document["groups"]:
        for name, member in group["providers"].items():
            for reason, what in member["skipped"].items():
                reasons.setdefault((name, reason), []).extend(what)
            identified = member["identified"] or {}
            for width, reason in identified.get("refused", {}).items():
                reasons.setdefault((name, reason), []).append(f"{group['op']} {group['dtype']}, identify at width {width}")
    for (name, reason), what in reasons.items():
        found.append(f"{name}: {reason} ({counted(len(what), 'call')}, the first: {what[0]})")
    return found


def show(screen: Console, document: dict[str, Any]) -> None:
    """Every table, then the findings and what was left out."""
    for each in tables(document):
        screen.print(table.terminal(each))
    for text in findings(document):
        screen.print(text, style="bold red", markup=False, soft_wrap=True)
    for text in left_out(document):
        screen.print(f"skipped: {text}", style="yellow", markup=False, soft_wrap=True)
