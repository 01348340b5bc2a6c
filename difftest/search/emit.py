"""A failure as a pytest file that stands on its own: the case with its values, and one call of `assert_conforms`."""

from __future__ import annotations

import pprint
from pathlib import Path

from difftest.report.files import write_text
from difftest.report.terminal import describe
from difftest.search.run import Finding

WIDTH = 120

TEMPLATE = '''"""{what}.

It fails on a kernel that is wrong there, and passes on a right one: name yours in CANDIDATE, FILE.py:FUNCTION.
"""

from difftest import assert_conforms

{why}
CANDIDATE = {candidate!r}
CASE = {case}


def test_{op}_conforms_{dtype}_{rows}x{width}():
    assert_conforms(CANDIDATE, case=CASE{where})
'''


def write(path: Path, candidate: str, finding: Finding) -> None:
    """Writes the test of a failure in one step. A candidate's file is named by its whole path. What failed on a CPU is run there,
    also where there is a GPU. LackingError as `write_text`.
    """
    case = finding.case
    file, colon, function = candidate.rpartition(":")
    text = TEMPLATE.format(
        what=describe(case),
        why="\n".join(f"# {' '.join(reason.split())}" for reason in finding.reasons),
        candidate=f"{Path(file).resolve()}:{function}" if colon and file.endswith(".py") else candidate,
        case=pprint.pformat(case.to_json(), sort_dicts=False, width=WIDTH),
        op=case.op,
        dtype=case.dtype,
        rows=case.rows,
        width=case.width,
        where=', device="cpu"' if case.device == "cpu" else "",
    )
    write_text(path, text)
