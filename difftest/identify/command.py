"""The command `identify`: options in, an exit status out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from difftest import options
from difftest.cases.case import Case
from difftest.errors import LackingError, UsageError
from difftest.identify import report
from difftest.identify.infer import identify as infer
from difftest.identify.order.fingerprint import order
from difftest.providers.resolve import is_file, operators_of, resolve
from difftest.report import files as record
from difftest.report import terminal as screens
from difftest.run.check import nothing_runs
from difftest.run.environment import environment, one_line
from reference.contracts import Contract
from reference.contracts import contract as contract_named
from reference.formats import FORMATS
from reference.operators import OPERATORS
from reference.operators.contract import contract_of
from reference.operators.declaration import RSTD
from reference.providers import Provider, Unavailable

# Rows of a call, beside those that the order of the sum is measured in: does another number of them change it?
BATCHES = (1, 16)


def identify(
    *,
    op: str,
    candidate: str,
    contract: str,
    dtype: str,
    widths: str,
    device: str,
    seed: int,
    json: Path | None,
    order_of_sum: str,
) -> int:
    """Names the contract that the candidate follows, as the last line, and the order in which it adds. Returns the exit status.

    `order_of_sum`: "with" the contract, "only", or "no".
    """
    provider = resolve(candidate)
    if not op and not is_file(candidate):
        raise UsageError(f"--op: name the operator, one of {', '.join(OPERATORS)}")
    names = options.names("--op", op, OPERATORS) if op else operators_of(candidate)
    if len(names) != 1:
        raise UsageError(f"--op: {op!r} names {len(names)} operators; identify takes one")
    which = OPERATORS[names[0]]
    dtypes = options.names("--dtype", dtype, FORMATS)
    if len(dtypes) != 1:
        raise UsageError(f"--dtype: {dtype!r} names {len(dtypes)} dtypes; identify takes one")
    storage = FORMATS[dtypes[0]].torch
    if order_of_sum == "only" and which.made_of != RSTD:
        raise UsageError(f"--order: {which.name} adds nothing up; only a norm has an order")
    wanted = options.widths(widths)
    options.seed(seed)
    where = options.device(device)
    asked = None
    if contract:
        try:
            asked = contract_named(which, contract)
        except ValueError as error:
            raise UsageError(f"--contract: {error}") from None
    if json:
        record.check_writable("--json", json)
    case = Case(which.name, dtypes[0], (1,), wanted[0], "", seed, contract_of(which), device=where)
    refused = {width: provider.check(replace(case, width=width)) for width in wanted}
    reason = nothing_runs(provider, [replace(case, width=width) for width in wanted])
    if reason:
        raise LackingError(f"--candidate: {candidate} can't run {which.name} on {where}: {reason}")
    function = _function(provider, which.name, asked)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: threads that wait for each other cost more than they bring
    taken = [width for width in wanted if not refused[width]]
    asks = which.made_of == RSTD and order_of_sum != "no"
    try:
        found = infer(which, function, storage, taken if order_of_sum != "only" else [], where, seed)
        widths_asked = [width for width in taken if asks and width not in found.refused]
        orders = [order(which, function, storage, width, where, batches=BATCHES, seed=seed) for width in widths_asked]
    finally:
        torch.set_num_threads(threads)
    found.refused = {**{width: why for width, why in refused.items() if why}, **found.refused}

    screen = screens.console()
    surroundings = environment(where)
    claimed = asked or provider.claims(which.name)
    claims = f", which claims {claimed}" if claimed and not is_file(candidate) else ""
    version = "" if is_file(candidate) and provider.version() == "file" else f" {provider.version()}"
    screen.print(f"{candidate}{version}{claims}", markup=False, soft_wrap=True)
    screen.print(one_line(surroundings), style="dim", soft_wrap=True)
    report.show_orders(screen, orders)
    if order_of_sum != "only":
        report.show(screen, found)
    if json:
        run = {"candidate": candidate, "version": provider.version(), "seed": seed, "environment": surroundings}
        only = {"schema": report.SCHEMA_OF_ORDERS, "op": which.name, "dtype": dtypes[0]}
        said = only if order_of_sum == "only" else {"schema": report.SCHEMA, **report.document(found)}
        record.write_json(json, {**said, **run, **({"orders": [each.document() for each in orders]} if asks else {})})
    return report.exit_status(found) if order_of_sum != "only" else report.exit_status_of_orders(orders)


def _function(provider: Provider, op: str, asked: Contract | None):
    try:
        return provider.function(op, asked)
    except Unavailable as error:
        raise LackingError(f"--candidate: {error}") from None
    except ValueError as error:
        raise UsageError(f"--contract: {error}") from None
