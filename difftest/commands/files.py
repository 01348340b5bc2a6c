"""The files that `difftest` and `replay` leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftest.report import files, html, junit, plots
from difftest.run.session import Outcome


@dataclass(frozen=True, slots=True)
class Files:
    """Where to leave what was found; None: nowhere. `failures` takes the worst case, only if there is a difference; it was named
    where `failures_named`. `markdown` is a matrix's. `emit_pytest` takes a failure, shrunk, as a
    test."""

    failures: Path
    failures_named: bool = True
    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    plots: Path | None = None
    markdown: Path | None = None
    emit_pytest: Path | None = None

    def check(self) -> None:
        """Fails before the run where a file could not be written after it."""
        named = {"--json": self.json, "--html": self.html, "--junit": self.junit, "--markdown": self.markdown}
        named["--emit-pytest"] = self.emit_pytest
        for option, path in named.items():
            if path:
                files.check_writable(option, path)
        files.check_apart(named, {"--plots": self.plots, "--failures": self.failures})
        if self.failures_named:  # a run that conforms has no need of the usual one
            files.check_folder("--failures", self.failures)
        if self.html:
            files.need("--html", "jinja2")
        if self.plots:
            files.make_folder("--plots", self.plots)

    def write(self, document: Mapping[str, Any], outcome: Outcome, repeat: Mapping[str, str]) -> None:
        """Writes each file that was asked for. One that can't be written after all is an error, once the others are.

        `repeat`: ways of repeating the worst case -> the command.
        """
        files.write_each(
            (self.json, lambda path: files.write_json(path, document)),
            (self.html, lambda path: html.write(path, document, outcome, repeat)),
            (self.junit, lambda path: junit.write(path, outcome)),
            (self.plots, lambda folder: plots.write(folder, outcome)),
        )
