"""The command `replay`: one saved case again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from difftest import options
from difftest.commands.compare import compare
from difftest.commands.files import Files
from difftest.errors import UsageError
from difftest.report import record
from difftest.run import isolation
from difftest.run.session import Session


def replay(
    spec: str,
    *,
    candidate: str,
    against: str,
    device: str,
    batch_invariant: bool,
    in_process: bool,
    call_timeout: float | None,
    files: Files,
    defaults: Mapping[str, Any],
) -> int:
    """Runs one saved case again, as it was or with another candidate, reference or device. Returns the exit status.

    The case is called again and in parts even if it was not when it was saved. The same candidate is held to
    batch invariance if it was. `defaults`: of the options of `difftest`.
    """
    case, saved = record.load_case(spec)
    chosen = candidate or str(saved.get("candidate", defaults["--candidate"]))
    references = options.words("--against", against or str(saved.get("against", defaults["--against"])))
    isolation.prepare((chosen, *references), in_process)
    where = options.device(device or case.device)
    files.check()
    strict = batch_invariant or (not candidate and bool((saved.get("stability") or {}).get("batch_invariant")))
    try:
        case.inputs()
    except ValueError as error:
        raise UsageError(f"CASE: {spec}: {error}") from None
    session = Session(
        [replace(case, device=where)],
        chosen,
        references,
        again=frozenset([0]),
        batch_invariant=strict,
        isolated=not in_process,
        call_seconds=call_timeout,
    )
    return compare(session, files, {"replay": spec, "batch_invariant": strict}, defaults)
