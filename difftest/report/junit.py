"""A run as a JUnit file, for continuous integration: one test case for each comparison. Standard library only."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from difftest.report import summary
from difftest.report.files import write_text
from difftest.report.terminal import describe
from difftest.run.session import Outcome


def write(path: Path, outcome: Outcome) -> None:
    """One suite for each operator, dtype and reference; differing cases fail, skipped ones are skipped, remarks are output.

    Cases that were not run at all are one error in a suite of its own: a run that ended early is no pass.
    """
    suites = ElementTree.Element("testsuites", name="difftest", time=f"{outcome.seconds:.3f}")
    skipped: dict[tuple[str, str, str], list] = {}
    for skip in outcome.skips:
        skipped.setdefault((skip.case.op, skip.case.dtype, skip.against), []).append(skip)
    for group in summary.groups(outcome.results):
        key = (group.op, group.dtype, group.against)
        _suite(suites, key, group.results, skipped.pop(key, []))
    for key, skips in skipped.items():
        _suite(suites, key, [], skips)
    if outcome.not_run:
        _not_run(suites, outcome)
    text = ElementTree.tostring(suites, encoding="unicode")
    write_text(path, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _suite(parent: ElementTree.Element, key: tuple[str, str, str], results: list, skips: list) -> None:
    op, dtype, against = key
    name = f"{op}.{dtype}.{against}"
    counts = {
        "tests": len(results) + len(skips),
        "failures": sum(r.differs for r in results),
        "skipped": len(skips) + sum(not r.evidence and not r.differs for r in results),
        "errors": 0,
    }
    suite = ElementTree.SubElement(parent, "testsuite", {"name": name, **{k: str(v) for k, v in counts.items()}})
    for result in results:
        test = ElementTree.SubElement(suite, "testcase", classname=name, name=describe(result.case))
        if result.differs:
            ElementTree.SubElement(test, "failure", message=_clean(result.reasons[0])).text = _clean("\n".join(result.reasons))
        elif not result.evidence:
            ElementTree.SubElement(test, "skipped", message=f"no evidence: {', '.join(result.vacuous) or 'no elements'}")
        if result.remarks:
            ElementTree.SubElement(test, "system-out").text = _clean("\n".join(result.remarks))
    for skip in skips:
        test = ElementTree.SubElement(suite, "testcase", classname=name, name=describe(skip.case))
        ElementTree.SubElement(test, "skipped", message=_clean(skip.reason))


def _not_run(parent: ElementTree.Element, outcome: Outcome) -> None:
    name = "not run"
    suite = ElementTree.SubElement(parent, "testsuite", name=name, tests="1", failures="0", skipped="0", errors="1")
    test = ElementTree.SubElement(suite, "testcase", classname=name, name=name)
    ElementTree.SubElement(test, "error", message=summary.early(outcome))


def _clean(text: str) -> str:
    """Without the control characters that XML can't hold."""
    return "".join(c for c in text if c in "\n\t" or ord(c) >= 32)
