"""A run as one self-contained HTML page. Needs jinja2, imported when a page is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from difftest.report import summary
from difftest.report.bins import bins
from difftest.report.files import write_text
from difftest.report.table import html
from difftest.report.terminal import describe, groups_tables
from difftest.run.session import Outcome
from difftest.wording import counted

MOST_CASES = 200  # of those that differ: the JSON holds all of them

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>difftest: {{ document.verdict }}</title>
<style>
 body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#222}
 table{border-collapse:collapse;margin:.6rem 0}
 td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}
 td:first-child,th:first-child{text-align:left} code{font-size:.85em}
 .bar{background:#47a;height:.7em;display:inline-block}
 .conforms,.green{color:#176b2c}.differs,.red{color:#b3261e;font-weight:600}.no,.yellow{color:#8a6100}
 .left{text-align:left} .class .bar{background:#c31}
 summary{cursor:pointer;margin:.3rem 0}
</style>
<h1>{{ document.request.candidate }} against {{ document.request.against | join(", ") }}:
 <span class="{{ document.verdict }}">{{ document.verdict }}</span></h1>
<p>{% for name, value in document.environment.items() %}{{ name }} {{ value }}
{{- ", " if not loop.last }}{% endfor %}</p>
<p>{{ counted(outcome.results | length, "comparison") }} in {{ "%.1f" | format(outcome.seconds) }} s
{%- if early %}; {{ early }}{% endif %}
{%- if document.stability.cases %}; {{ counted(document.stability.cases, "case") }} called again and in parts:
{{ document.stability.changing }} change from run to run, {{ document.stability.batch_dependent }} depend on the batch
{%- endif %}</p>
{{ table }}
<h2>ULP histograms</h2>
{% for group, totals in groups %}<details {{ "open" if group.differing }}>
<summary>{{ group.op }} {{ group.dtype }} against {{ group.against }}</summary>
{% for name, total in totals.items() if total.elements %}
<table><tr><th>{{ name }}, {{ total.elements }} elements<th>below<th>above<th style="text-align:left">(log scale)</tr>
{% for b in bins(total.histogram) if b.count %}
<tr><td>{{ b.label }}<td>{{ b.below if b.high }}<td>{{ b.above }}
<td style="text-align:left"><span class="bar" style="width:{{ length(b.count, total.elements) }}px"></span></tr>
{% endfor %}
{% for kind, count in total.classes.items() %}
<tr class="class"><td>{{ kind }}<td><td>{{ count }}
<td style="text-align:left"><span class="bar" style="width:{{ length(count, total.elements) }}px"></span></tr>
{% endfor %}
</table>{% endfor %}</details>{% endfor %}
{% if differing %}<h2>Differences</h2>{% endif %}
{% for result in differing[:most] %}<details>
<summary>{{ describe(result.case) }}, against {{ result.against }}</summary>
<ul>{% for reason in result.reasons %}<li>{{ reason }}</li>{% endfor %}</ul>
{% for name, c in result.outputs.items() if c.worst %}
<p><code>{{ name }}{{ c.worst.index | list }}: {{ c.worst.actual }}, expected {{ c.worst.expected }}:
{{ c.worst.apart }}</code></p>
{% endfor %}</details>{% endfor %}
{% if differing | length > most %}<p>... and {{ differing | length - most }} more</p>{% endif %}
{% if remarked %}<h2>Remarks</h2><ul>
{% for result in remarked[:most] %}
<li>{{ describe(result.case) }}: {{ result.remarks | join("; ") }}</li>
{% endfor %}</ul>{% endif %}
{% if remarked | length > most %}<p>... and {{ remarked | length - most }} more</p>{% endif %}
{% if document.skipped %}<h2>Skipped</h2><ul>
{% for skip in document.skipped %}
<li>{{ skip.op }} {{ skip.dtype }} against {{ skip.against }}, {{ counted(skip.cases, "case") }}: {{ skip.reason }}</li>
{% endfor %}</ul>{% endif %}
</html>
"""


def write(path: Path, document: Mapping[str, Any], outcome: Outcome) -> None:
    """Writes the page: verdict, table, histograms, the differing cases, remarks, what was skipped."""
    import jinja2

    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_PAGE)
    page = template.render(
        document=document,
        outcome=outcome,
        table=jinja2.utils.markupsafe.Markup("".join(map(html, groups_tables(summary.groups(outcome.results))))),
        groups=[(group, group.totals()) for group in summary.groups(outcome.results)],
        differing=sorted((r for r in outcome.results if r.differs), key=summary.severity, reverse=True),
        remarked=[r for r in summary.called_again(outcome.results) if r.remarks],
        most=MOST_CASES,
        bins=bins,
        length=_length,
        describe=describe,
        counted=counted,
        early=summary.early(outcome),
    )
    write_text(path, page)


def _length(count: int, elements: int) -> int:
    """Pixels of a bar on a logarithmic scale."""
    return max(2, round(300 * math.log1p(count) / math.log1p(elements)))
