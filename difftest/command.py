"""The commands `difftest` and `replay`: options in, an exit status out. `cli.py` only passes words on to here.

Imports the rest of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from difftest import extras, html, junit, options, plots, record, regimes, report, session, stability, summary
from difftest.candidates import is_file, operators_of, resolve
from difftest.cases import Case, Request, generate
from difftest.dtypes import DTYPES
from difftest.environment import environment
from difftest.errors import LackingError, UsageError
from difftest.matrix import command as matrix_command
from difftest.run import Result
from reference.operators import OPERATORS

STRICT = "--batch-invariant"
FAILURES = Path("out/failures")


@dataclass(frozen=True, slots=True)
class Files:
    """Where to leave what was found; None: nowhere. `failures` takes the worst case, only if there is a difference. `markdown`
    is a matrix's."""

    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    plots: Path | None = None
    failures: Path = FAILURES
    markdown: Path | None = None

    def check(self) -> None:
        """Fails before the run where a file could not be written after it."""
        files = {"--json": self.json, "--html": self.html, "--junit": self.junit, "--markdown": self.markdown}
        for option, path in files.items():
            if path:
                record.check_writable(option, path)
        record.check_apart(files, {"--plots": self.plots, "--failures": self.failures})
        if self.failures != FAILURES:  # nobody asked for the usual one, which a run that conforms has no need of
            record.check_folder("--failures", self.failures)
        if self.html:
            extras.need("--html", "jinja2")
        if self.plots:
            extras.need("--plots", "matplotlib")
            extras.make_folder("--plots", self.plots)

    def write(self, document: Mapping[str, Any], outcome: session.Outcome) -> None:
        """Writes each file that was asked for. One that can't be written after all is an error, once the others are."""
        record.write_each(
            (self.json, lambda path: record.write_json(path, document)),
            (self.html, lambda path: html.write(path, document, outcome)),
            (self.junit, lambda path: junit.write(path, outcome)),
            (self.plots, lambda folder: plots.write(folder, outcome)),
        )


def difftest(
    *,
    ops: str,
    dtypes: str | None,
    widths: str | None,
    rows: str,
    regime_names: str,
    candidate: str,
    against: str,
    contract: str,
    eps: float,
    device: str,
    seed: int,
    cases: int,
    time_budget: float | None,
    workers: int | None,
    batch_invariant: bool = False,
    files: Files,
) -> int:
    """Compares the candidate with each reference over the cases asked for, and reports. Returns the exit status.

    Several candidates make a matrix, `difftest.matrix`, which calls each under the contract that it claims.
    """
    if matrix_command.is_matrix(candidate):
        single = {"--contract": contract, "--html": files.html, "--junit": files.junit, STRICT: batch_invariant}
        for option, given in single.items():
            if given:
                raise UsageError(f"{option}: a matrix has none; give one --candidate")
        return matrix_command.matrix(
            ops=ops,
            dtypes="fp16,bf16" if dtypes is None else dtypes,
            widths=widths,
            rows=rows,
            regime_names=regime_names,
            candidate=candidate,
            against=against,
            device=device,
            seed=seed,
            time_budget=time_budget,
            workers=workers,
            files=files,
        )
    if files.markdown:
        raise UsageError("--markdown: for a matrix of several candidates, or --candidate all")
    against = against or "torch"
    if "all" in options.words("--against", against):
        against = ",".join(matrix_command.names("--against", against))
    dtypes = "fp16,bf16,fp32" if dtypes is None else dtypes
    widths = "1,3,111,4096" if widths is None else widths
    resolve(candidate)
    op_names = options.names("--ops", ops, OPERATORS) if ops else operators_of(candidate)
    options.seed(seed)
    options.at_least("--cases", cases, 0)
    options.at_least("--workers", workers or 0, 0)
    options.at_least("--time-budget", time_budget or 0.0, 0.0)
    contracts, without = options.contracts(contract, op_names, eps)
    request = Request(
        contracts=contracts,
        dtypes=options.names("--dtypes", dtypes, DTYPES),
        widths=options.widths(widths),
        rows=options.whole_numbers("--rows", rows, 0) if rows else None,
        regimes=options.names("--regimes", regime_names, regimes.REGIMES) if regime_names else None,
        extra=cases,
        seed=seed,
        eps=eps,
        device=options.device(device),
    )
    planned = list(generate(request))
    plan = session.Plan(
        planned,
        candidate,
        options.words("--against", against),
        session.default_workers(candidate, request.device) if workers is None else workers,
        time_budget,
        frozenset(range(len(planned))) if is_file(candidate) else stability.chosen(planned),
        batch_invariant,
    )
    files.check()
    options.memory_for(max((case.rows * case.width for case in planned), default=0))
    notes = [f"{op} has no contract {contract}: not run" for op in without]
    asked = {
        "ops": list(contracts),
        "contracts": contracts,
        "dtypes": request.dtypes,
        "widths": request.widths,
        "seed": seed,
        "batch_invariant": batch_invariant,
    }
    return _run(plan, files, asked, request, notes)


def replay(spec: str, *, candidate: str, against: str, device: str, batch_invariant: bool = False, files: Files) -> int:
    """Runs one saved case again, as it was or with another candidate, reference or device. Returns the exit status.

    The case is called again and in parts even if it was not when it was saved. The same candidate is held to
    batch invariance if it was.
    """
    case, saved = record.load_case(spec)
    where = options.device(device or case.device)
    chosen = candidate or str(saved.get("candidate", "numba"))
    references = options.words("--against", against or str(saved.get("against", "torch")))
    files.check()
    moved = Case.from_json({**case.to_json(), "device": where})
    strict = batch_invariant or (not candidate and bool((saved.get("stability") or {}).get("batch_invariant")))
    plan = session.Plan([moved], chosen, references, again=frozenset([0]), batch_invariant=strict)
    return _run(plan, files, {"replay": spec, "batch_invariant": strict})


def _run(
    plan: session.Plan,
    files: Files,
    asked: Mapping[str, Any],
    request: Request | None = None,
    notes: Sequence[str] = (),
) -> int:
    device = plan.cases[0].device if plan.cases else "cpu"
    _check_providers(plan, device)
    screen = report.console()
    where = environment(device)
    report.heading(screen, where, plan.candidate, plan.against, len(plan.cases))
    for note in notes:
        screen.print(note, style="yellow")
    with report.progress(len(plan.cases)) as on_case:
        outcome = session.run(plan, on_case)
    found = summary.worst(outcome.results)
    repeat = _ways_to_repeat(found, plan, request, files.failures) if found else {}
    remarked = summary.remarked(outcome.results)
    strictly = report.command_line(*_narrowed(remarked, plan, request), STRICT) if remarked and request else f"with {STRICT}"
    report.results(screen, outcome, repeat, strictly)
    wanted = {"candidate": plan.candidate, "against": list(plan.against), **asked}
    files.write(record.document(outcome, where, wanted), outcome)
    return summary.exit_status(outcome)


def _check_providers(plan: session.Plan, device: str) -> None:
    """Errors before the run: a name that means nothing, a candidate that can't run here."""
    reason = resolve(plan.candidate).unavailable(torch.device(device))
    for name in plan.against:
        resolve(name, "--against")
    if reason:
        raise LackingError(f"--candidate: {plan.candidate} can't run on {device}: {reason}")
    if not plan.cases:
        raise UsageError("--regimes: none of them applies to the operators asked for, so there is no case to run")


def _ways_to_repeat(found: Result, plan: session.Plan, request: Request | None, failures: Path) -> dict[str, str]:
    """What to call each way of running the worst case again -> the command. Saves the case if it differs, or says why not."""
    ways = {}
    if found.differs:
        try:
            ways["this case again"] = report.command_line("replay", record.save_case(failures, found))
        except LackingError as error:
            ways["this case is not saved"] = str(error)
    if request:
        ways["and its neighbours"] = report.command_line(*_narrowed(found, plan, request))
    return ways


def _narrowed(found: Result, plan: session.Plan, request: Request) -> list[object]:
    """The words of a `difftest` command whose cases contain this one: its seed depends on no other option."""
    case = found.case
    words: list[object] = ["difftest", "--ops", case.op, "--dtypes", case.dtype]
    part, _, number = case.origin.partition(":")
    if part == "random":
        words += ["--widths", 1, "--cases", int(number) + 1]
    else:
        words += ["--widths", case.width, "--cases", 0]
    if part == "grid":
        words += ["--rows", case.rows]
    elif part == "random" and request.rows is not None:
        words += ["--rows", ",".join(map(str, request.rows))]
    if part != "random":
        words += ["--regimes", case.regime]
    elif request.regimes is not None:
        words += ["--regimes", ",".join(request.regimes)]
    defaults = {
        "--candidate": (plan.candidate, "numba"),
        "--against": (found.against, "torch"),
        "--contract": (case.contract, case.operator.codes[0]),
        "--eps": (request.eps, 1e-6),
        "--device": (case.device, options.device("auto")),
        "--seed": (request.seed, 0),
    }
    for option, (value, default) in defaults.items():
        if value != default:
            words += [option, value]
    if plan.batch_invariant:
        words.append(STRICT)
    return words
