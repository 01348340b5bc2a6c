"""The command `difftest`: the cases asked for, a candidate, and its references; or a matrix of several candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from difftest import options
from difftest.cases import regimes
from difftest.cases.case import spelling
from difftest.cases.generate import Request, generate
from difftest.commands.compare import STRICT, compare
from difftest.commands.files import Files
from difftest.errors import UsageError
from difftest.matrix import command as matrix_command
from difftest.providers.resolve import is_file, operators_of, resolve
from difftest.run import session, stability
from difftest.run.session import Session
from reference.formats import FORMATS
from reference.operators import OPERATORS


def difftest(
    *,
    ops: str,
    dtypes: str,
    widths: str,
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
    batch_invariant: bool,
    files: Files,
    defaults: Mapping[str, Any],
    matrix_defaults: Mapping[str, Any],
) -> int:
    """Compares the candidate with each reference over the cases asked for, and reports. Returns the exit status.

    Several candidates make a matrix, `difftest.matrix`, which calls each under the contract that it claims. `defaults`: option
    -> what holds where nothing is named; `matrix_defaults`: those that are others for a matrix.
    """
    if matrix_command.is_matrix(candidate):
        single = {"--contract": contract, "--html": files.html, "--junit": files.junit, STRICT: batch_invariant}
        for option, given in single.items():
            if given:
                raise UsageError(f"{option}: a matrix has none; give one --candidate")
        return matrix_command.matrix(
            ops=ops,
            dtypes=dtypes or matrix_defaults["--dtypes"],
            widths=widths or matrix_defaults["--widths"],
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
    against = against or defaults["--against"]
    if "all" in options.words("--against", against):
        against = ",".join(matrix_command.names("--against", against))
    resolve(candidate)
    op_names = options.names("--ops", ops, OPERATORS) if ops else operators_of(candidate)
    options.seed(seed)
    options.at_least("--cases", cases, 0)
    options.at_least("--workers", workers or 0, 0)
    options.at_least("--time-budget", time_budget or 0.0, 0.0)
    contracts, without = options.contracts(contract, op_names, eps)
    request = Request(
        contracts=contracts,
        dtypes=options.names("--dtypes", dtypes or defaults["--dtypes"], FORMATS),
        widths=options.widths(widths or defaults["--widths"]),
        rows=options.whole_numbers("--rows", rows, 0) if rows else None,
        regimes=options.names("--regimes", regime_names, regimes.REGIMES) if regime_names else None,
        extra=cases,
        seed=seed,
        device=options.device(device),
    )
    generated = list(generate(request))
    asked = Session(
        generated,
        candidate,
        options.words("--against", against),
        session.default_workers(candidate, request.device) if workers is None else workers,
        time_budget,
        frozenset(range(len(generated))) if is_file(candidate) else stability.chosen(generated),
        batch_invariant,
    )
    files.check()
    options.memory_for(max((case.rows * case.width for case in generated), default=0))
    notes = [f"{op} has no contract {contract}: not run" for op in without]
    in_words = {
        "ops": list(contracts),
        "contracts": {op: spelling(OPERATORS[op], each) for op, each in contracts.items()},
        "dtypes": request.dtypes,
        "widths": request.widths,
        "seed": seed,
        "batch_invariant": batch_invariant,
    }
    return compare(asked, files, in_words, defaults, request, notes)
