"""A run as one self-contained HTML page, `page.html.j2` filled in. Needs jinja2, imported when a page is written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from difftest.cases.case import Case
from difftest.report import accounts, histograms, picture, summary, worst
from difftest.report.files import write_text
from difftest.report.terminal import command_line, describe
from difftest.run.check import Result
from difftest.run.session import Outcome
from difftest.wording import compact, counted

MOST_CASES = 40  # of one operator, dtype and regime: the JSON holds all of them
MOST_REMARKS = 40
TEMPLATE = Path(__file__).parent / "page.html.j2"
STYLE = {"conforms": "green", "differs": "red", "no evidence": "yellow"}
ENDED = {
    accounts.CONFORM: "green",
    accounts.DIFFER: "red",
    accounts.NO_EVIDENCE: "yellow",
    accounts.NO_ELEMENTS: "quiet",
}


def write(path: Path, document: Mapping[str, Any], outcome: Outcome, repeat: Mapping[str, str]) -> None:
    """Writes the page. `document`: the run as the JSON has it; `repeat`: ways of repeating the worst case -> the command."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    safe = jinja2.utils.markupsafe.Markup
    groups = summary.groups(outcome.results)
    found = summary.worst(outcome.results)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        verdict=document["verdict"],
        candidate=document["request"]["candidate"],
        against=document["request"]["against"],
        reasons=list(_reasons(document, outcome, found)),
        command=command_line(*sys.argv[1:]),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=outcome.seconds,
        environment=document["environment"],
        worst=_worst(found) if found else None,
        repeat=repeat,
        matrix=_matrix(outcome.results),
        histograms=[{**each, "picture": safe(each["picture"])} for each in _histograms(groups)],
        accounts=accounts.sentence(outcome),
        covered=_covered(document, outcome),
        not_covered=list(_not_covered(document, outcome)),
        remarks=[
            f"{describe(result.case)}: {'; '.join(result.remarks)}"
            for result in summary.called_again(outcome.results)
            if result.remarks
        ][:MOST_REMARKS],
        groups=[_group(group) for group in _by_operator_and_dtype(outcome.results)],
        colours=safe(picture.colours()),
        picture_style=safe(picture.STYLE),
    )
    write_text(path, page)


def _reasons(document: Mapping[str, Any], outcome: Outcome, found: Result | None) -> Iterator[str]:
    """Why the verdict is what it is."""
    terms = accounts.accounts(outcome)
    compared = sum(c.elements for result in outcome.results for c in result.outputs.values())
    if document["verdict"] == "differs" and found:
        differ = f"{terms[accounts.DIFFER]:,} of {counted(len(outcome.results), 'comparison')} differ"
        yield f"{differ}, the worst: {describe(found.case)}"
        yield from found.reasons[:1]
    elif document["verdict"] == "conforms":
        yield (
            f"All of {compared:,} elements are what the contract allows; {counted(terms[accounts.CONFORM], 'comparison')} "
            "would have told a trivial mutant."
        )
    else:
        yield "No comparison can tell a trivial mutant from the operator, which is no pass."
    if outcome.not_run:
        yield summary.early(outcome)


def _worst(found: Result) -> dict[str, Any]:
    outputs = []
    for name, comparison in found.outputs.items():
        element = comparison.worst
        if element:
            outputs.append(
                {
                    "name": f"{name}{list(element.index)}: {element.apart}",
                    "lines": worst.element_lines(name, element, found.against),
                    "where": f"{name}{list(element.index[:-1])}",
                    "column": element.index[-1],
                    "row": element.truth.row if element.truth else (),
                }
            )
    return {
        "headline": worst.headline(found),
        "case": describe(found.case),
        "against": found.against,
        "reasons": found.reasons[: worst.MOST_REASONS],
        "outputs": outputs,
    }


def _matrix(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each operator its regimes by dtypes: how many comparisons, how they ended, where they stand on the page."""
    found: dict[str, dict[str, dict[str, list[Result]]]] = {}
    for result in results:
        case = result.case
        found.setdefault(case.op, {}).setdefault(case.regime, {}).setdefault(case.dtype, []).append(result)
    tables = []
    for op, regimes in found.items():
        dtypes = list(dict.fromkeys(dtype for row in regimes.values() for dtype in row))
        rows = [
            {"regime": regime, "entries": [_entry(row[dtype]) if dtype in row else None for dtype in dtypes]}
            for regime, row in regimes.items()
        ]
        tables.append({"name": op, "dtypes": dtypes, "rows": rows})
    return tables


def _entry(results: Sequence[Result]) -> dict[str, str]:
    """Some comparisons of one operator, dtype and regime: a sign with a count, its colour, the place on the page."""
    ends = Counter(accounts.ended(result) for result in results)
    case = results[0].case
    where = f"{case.op}-{case.dtype}-{case.regime}"
    if ends[accounts.DIFFER]:
        return {"id": where, "style": "red", "text": f"✗ {ends[accounts.DIFFER]} of {len(results)}"}
    if ends[accounts.CONFORM]:
        return {"id": where, "style": "green", "text": f"✓ {len(results)}"}
    return {"id": where, "style": "yellow", "text": f"○ {len(results)}"}


def _histograms(groups: Sequence[summary.Group]) -> Iterator[dict[str, Any]]:
    """Those of groups that differ, then the others' by family and dtype."""
    for each in histograms.shown(groups):
        title = f"{each.title}: {each.output}"
        drawn = picture.inline(each.total, title) if each.total.mismatches else ""
        yield {"title": f"{title}, {each.total.elements:,} elements", "elements": f"{each.total.elements:,}", "picture": drawn}


def _covered(document: Mapping[str, Any], outcome: Outcome) -> dict[str, str]:
    """Dimension -> the values that there were cases of."""
    cases: list[Case] = list(dict.fromkeys(result.case for result in outcome.results))
    pairs = document.get("coverage")
    again = document["stability"]
    found = {"cases": f"{len(cases):,}"}
    if pairs:
        what = "pairs" if pairs["strength"] == 2 else "triples"
        found[what] = f"{pairs['covered']:,} of {pairs['required']:,} combinations of values of different dimensions of a call"
    found |= {
        "widths": _numbers(case.width for case in cases),
        "rows": _numbers(case.rows for case in cases),
        "dimensions": _numbers(len(case.shape) for case in cases),
        "contracts": ", ".join(dict.fromkeys(case.spelling for case in cases)),
        "weights": ", ".join(dict.fromkeys(case.weights for case in cases if case.operator.vectors)) or "-",
        "memory": f"{_having(cases, 'padding')} with padded rows, {_having(cases, 'misaligned')} off their alignment",
        "called again": f"{counted(again['cases'], 'case')}, in parts too: {again['changing']} change from run to run, "
        f"{again['batch_dependent']} depend on the batch",
    }
    return found


def _having(cases: Sequence[Case], what: str) -> str:
    return counted(sum(bool(getattr(case, what)) for case in cases), "case")


def _numbers(values: Any) -> str:
    found = sorted(set(values))
    return ", ".join(map(str, found)) if len(found) <= 24 else f"{len(found)} from {found[0]} to {found[-1]}"


def _not_covered(document: Mapping[str, Any], outcome: Outcome) -> Iterator[str]:
    """A sentence each: what proves nothing, was skipped or not run, and what no case of the run asks."""
    unproved = accounts.unproved(outcome)
    if unproved:
        yield f"Without evidence, {accounts.WHY[accounts.NO_EVIDENCE]}: {unproved}"
    for skip in summary.skips_by_reason(outcome.skips):
        what = f"{skip['op']} {skip['dtype']} against {skip['against']}"
        yield f"Skipped: {what}, {counted(int(str(skip['cases'])), 'case')}: {skip['reason']}"
    if outcome.not_run:
        yield f"Not run: {summary.early(outcome)}"
    yield from (document.get("coverage") or {}).get("not_covered", ())


def _by_operator_and_dtype(results: Sequence[Result]) -> list[summary.Group]:
    """The results of all references together."""
    found: dict[tuple[str, str], summary.Group] = {}
    for result in results:
        key = (result.case.op, result.case.dtype)
        found.setdefault(key, summary.Group(*key, "")).results.append(result)
    return list(found.values())


def _group(group: summary.Group) -> dict[str, Any]:
    by_regime: dict[str, list[Result]] = {}
    for result in group.results:
        by_regime.setdefault(result.case.regime, []).append(result)
    output = group.totals().get("output")
    said = counted(len(group.results), "comparison")
    if output:
        most = compact(output.max_ulp)
        said += f", {output.mismatches:,} of {output.elements:,} elements of the output differ, by {most} ULP at most"
    return {
        "title": f"{group.op} {group.dtype}",
        "verdict": group.verdict,
        "style": STYLE[group.verdict],
        "differs": bool(group.differing),
        "said": said,
        "parts": [_part(regime, results) for regime, results in by_regime.items()],
    }


def _part(regime: str, results: Sequence[Result]) -> dict[str, Any]:
    ordered = sorted(results, key=summary.severity, reverse=True)
    more = max(0, len(results) - MOST_CASES)
    return {**_entry(results), "regime": regime, "cases": [_case(r) for r in ordered[:MOST_CASES]], "more": more}


def _case(result: Result) -> dict[str, Any]:
    ended = accounts.ended(result)
    output = result.outputs.get("output")
    return {
        "shape": "x".join(map(str, result.case.shape)),
        "call": describe(result.case).split(", ", 2)[2],
        "against": result.against,
        "ended": ended,
        "style": ENDED[ended],
        "mismatches": f"{output.mismatches:,}" if output else "-",
        "ulp": f"{output.max_ulp:,}" if output else "-",
        "reason": result.reasons[0] if result.reasons else "",
    }
