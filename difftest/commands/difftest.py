"""The command `difftest`: the cases asked for, a candidate, and its references; or a matrix of several candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from difftest import options
from difftest.cases import regimes
from difftest.cases.case import Case, spelling
from difftest.cases.generate import generate
from difftest.cases.request import Request
from difftest.cases.widths import WIDEST_COMPILED, WIDEST_DRAWN
from difftest.commands import activations
from difftest.commands.compare import STRICT, compare
from difftest.commands.files import Files
from difftest.errors import UsageError
from difftest.matrix import command as matrix_command
from difftest.options import Given
from difftest.providers.resolve import operators_of, resolve
from difftest.report import record
from difftest.report.baseline import Baseline
from difftest.report.journals import opened
from difftest.run import isolation, session, stability
from difftest.run import journal as journals
from difftest.run.journal import Journal
from difftest.run.perform import takes_out
from difftest.run.session import Session
from reference import providers
from reference.contracts import Contract
from reference.formats import FORMATS
from reference.operators import OPERATORS
from reference.providers import Provider, Unavailable

COMPILED = ("numba", "textbook")  # what compiles a kernel for each of a few forms, and takes `out`


def difftest(
    *,
    files: Files,
    baseline: Path | None,
    inputs: Path | None,
    journal: Path | None,
    resume: Path | None,
    defaults: Mapping[str, Any],
    matrix_defaults: Mapping[str, Any],
    **options_given: Any,
) -> int:
    """Compares the candidate with each reference over the cases asked for, and reports. Returns the exit status.

    Several candidates make a matrix, `difftest.matrix`, which calls each under the contract that it claims. `baseline`: an
    earlier run's JSON. `inputs`: a file of tensors, in place of what regimes draw. `journal`, `resume`: the file that each case
    is kept in as it ends, and that of a run that was killed, to go on with. `options_given`: the fields of `Given`.
    `defaults`: option -> what holds where nothing is named; `matrix_defaults`: those that are others for a matrix.
    """
    given = Given(**options_given)
    isolation.prepare((given.candidate, *given.against.split(",")), given.in_process)
    if matrix_command.is_matrix(given.candidate):
        return _matrix(
            given, files, {"--baseline": baseline, "--inputs": inputs, "--journal": journal, "--resume": resume}, matrix_defaults
        )
    if files.markdown:
        raise UsageError("--markdown: for a matrix of several candidates, or --candidate all")
    saved = journals.saved_in(resume) if resume else None
    session, request, notes = planned(given, defaults, files.failures, saved=saved)
    words = _in_words(given, request)
    before = Baseline.read(baseline) if baseline else None
    if inputs:
        of_file, more = _of_file(given, request, inputs)
        session, notes = replace(session, cases=of_file, again=frozenset(range(len(of_file)))), [*notes, *more]
        words |= {"inputs": str(inputs)}
    files.check()
    options.memory_for(max((case.rows * case.width for case in session.cases), default=0))
    about = journals.about(session.candidate, session.against, session.batch_invariant, session.cases)
    kept = opened(Journal, about, journal, resume)
    try:
        return compare(session, files, words, defaults, None if inputs else request, notes, before, kept)
    finally:
        if kept:
            kept.close()


def _of_file(given: Given, request: Request, inputs: Path) -> tuple[list[Case], list[str]]:
    """The cases of a file of tensors, and what to say of the operators that are left out."""
    for option, value in {"--rows": given.rows, "--regimes": given.regime_names, "--time-budget": given.time_budget}.items():
        if value:
            raise UsageError(f"{option}: with --inputs there is none, the file says what is run")
    dtypes = request.dtypes if given.dtypes else ()
    widths = request.widths if given.widths else ()
    found, left_out = activations.cases(inputs, request.contracts, bool(given.ops), dtypes, widths, request.device)
    return found, [f"left out: {reason}" for reason in left_out]


def planned(
    given: Given,
    defaults: Mapping[str, Any],
    failures: Path,
    provider: Provider | None = None,
    saved: Sequence[Case] | None = None,
) -> tuple[Session, Request, list[str]]:
    """The cases that the options ask for and how they are run, the request that they come from, and what to say of it.

    What failed before and is saved in `failures`, or these `saved`, runs first. `provider`: the candidate, where its name is not
    enough to find it.
    """
    bounded = bool(given.widths)
    given = _with_defaults(given, defaults)
    op_names = options.names("--ops", given.ops, OPERATORS) if given.ops else operators_of(given.candidate)
    given.check_numbers()
    where = options.device(given.device)
    isolated = not given.in_process
    candidate = provider or (
        isolation.provider(given.candidate, device=where, seconds=given.call_timeout) if isolated else resolve(given.candidate)
    )
    contracts, without = options.contracts(given.contract, op_names, given.eps)
    request = _request(given, contracts, candidate, bounded)
    if saved is None:
        saved = record.saved_cases(failures, given.candidate, request)
    session = replace(_session(given, request, saved), provider=candidate)
    return session, request, [f"{op} has no contract {given.contract}: not run" for op in without]


def _matrix(given: Given, files: Files, single: dict[str, Any], defaults: Mapping[str, Any]) -> int:
    single |= {"--contract": given.contract, "--html": files.html, "--junit": files.junit, STRICT: given.batch_invariant}
    single["--emit-pytest"] = files.emit_pytest
    for option, value in single.items():
        if value:
            raise UsageError(f"{option}: a matrix has none; give one --candidate")
    dtypes, widths = given.dtypes or defaults["--dtypes"], given.widths or defaults["--widths"]
    return matrix_command.matrix(replace(given, dtypes=dtypes, widths=widths), files)


def _with_defaults(given: Given, defaults: Mapping[str, Any]) -> Given:
    """The options, with what holds where nothing is named; `all` references by name."""
    against = given.against or defaults["--against"]
    if "all" in options.words("--against", against):
        against = ",".join(matrix_command.names("--against", against))
    dtypes, widths = given.dtypes or defaults["--dtypes"], given.widths or defaults["--widths"]
    return replace(given, against=against, dtypes=dtypes, widths=widths)


def _request(given: Given, contracts: Mapping[str, Contract], provider: Provider, bounded: bool) -> Request:
    """What the cases are generated from. `bounded`: no case is wider than the widths that were asked for."""
    compiled = given.candidate in COMPILED
    return Request(
        contracts=contracts,
        dtypes=options.names("--dtypes", given.dtypes, FORMATS),
        widths=options.widths(given.widths),
        rows=options.whole_numbers("--rows", given.rows, 0) if given.rows else None,
        regimes=options.names("--regimes", given.regime_names, regimes.REGIMES) if given.regime_names else None,
        extra=given.cases,
        seed=given.seed,
        device=options.device(given.device),
        strength=given.strength,
        widest=None if bounded else WIDEST_COMPILED if compiled else WIDEST_DRAWN,
        few_forms=compiled,
        no_out=frozenset() if compiled else frozenset(op for op in contracts if not _takes_out(provider, op, contracts[op])),
    )


def _takes_out(provider: Provider, op: str, contract: Contract) -> bool:
    """Whether the candidate has a parameter `out`; one that can't say is asked for it."""
    try:
        return takes_out(provider.function(op, contract))
    except (ValueError, Unavailable, SystemExit):
        return True


def _session(given: Given, request: Request, saved: Sequence[Case]) -> Session:
    """The saved cases, then the request's, and how they are run."""
    cases = [*saved, *generate(request)]
    return Session(
        cases,
        given.candidate,
        options.words("--against", given.against),
        session.default_workers(given.candidate, request.device) if given.workers is None else given.workers,
        given.time_budget,
        frozenset(range(len(cases))) if given.candidate not in providers.names() else stability.chosen(cases),
        given.batch_invariant,
        not given.in_process,
        given.call_timeout,
        on=given.on,
    )


def _in_words(given: Given, request: Request) -> dict[str, Any]:
    """What the JSON says of the request."""
    return {
        "ops": list(request.contracts),
        "contracts": {op: spelling(OPERATORS[op], each) for op, each in request.contracts.items()},
        "dtypes": request.dtypes,
        "widths": list(request.widths),
        "seed": given.seed,
        "batch_invariant": given.batch_invariant,
    }
