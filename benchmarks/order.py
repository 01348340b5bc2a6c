"""In which order each implementation adds the squares of a row, and whether the number of rows in a call changes it.

python benchmarks/order.py benchmarks/results/order-h200.jsonl
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest import options
from difftest.cases.case import Case
from difftest.identify.order import survey
from difftest.identify.order.fingerprint import ROWS
from difftest.report import jsonl
from difftest.run import conditions, pool
from difftest.run.environment import environment
from reference.operators.contract import contract_of

SCHEMA = "numba-kernels/order/1"
# torch is the reference's plain arithmetic, torch-rmsnorm F.rms_norm after an add: eager torch.
PROVIDERS = "numba,torch-rmsnorm,torch,torch-compile,triton,flashinfer,liger,quack"
BATCHES = "1,16,4096"
CHECKED = 1024  # pivots of a wider row that are checked


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--providers", default=PROVIDERS, show_default=True)
@click.option("--ops", default="fused_add_rmsnorm", show_default=True)
@click.option("--dtypes", default="bf16,fp32", show_default=True)
@click.option("--widths", default="4096,111,1024", show_default=True)
@click.option("--batches", default=BATCHES, show_default=True, help=f"Rows of a call, beside {ROWS}.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--time-budget", default=75.0, show_default=True, help="Begin no further width after so many seconds.")
@click.option("--processes", type=int, help="0: in this one.  [default: one an implementation, up to the cores]")
def main(file: Path, providers: str, ops: str, dtypes: str, widths: str, batches: str, device: str, **limits: Any) -> None:
    began, where = time.monotonic(), options.device(device)
    pool.prepare()
    cases = [
        Case(op, dtype, (ROWS,), width, "", 0, contract_of(op), device=where)
        for op in ops.split(",")
        for width in map(int, widths.split(","))
        for dtype in dtypes.split(",")
    ]
    names = providers.split(",")
    document = {**_head(where), "rows": ROWS, "providers": survey.versions(names), "orders": []}

    def keep(entry: dict[str, Any]) -> None:
        click.echo(_said(entry))
        document["orders"].append(entry)
        jsonl.write(file, document, ["orders"])  # whole after every order

    asked = survey.Survey(names, cases, [int(rows) for rows in batches.split(",")], 0, CHECKED)
    processes = min(len(names), pool.cores()) if limits["processes"] is None else limits["processes"]
    document["orders"] = survey.run(asked, keep, processes=processes, seconds=limits["time_budget"])
    document["seconds"] = round(time.monotonic() - began, 1)
    jsonl.write(file, document, ["orders"])
    click.echo(f"{file}: {len(document['orders'])} orders in {document['seconds']} s")


def _head(where: str) -> dict[str, Any]:
    command = " ".join(["python benchmarks/order.py", *(Path(word).name for word in sys.argv[1:])])  # no folder of a machine
    if where.startswith("cuda"):
        return conditions.head(SCHEMA, command, torch.device(where))
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"schema": SCHEMA, "date": date, "command": command, "environment": environment(where)}


def _said(entry: dict[str, Any]) -> str:
    what = f"{entry['provider']} {entry['op']} {entry['dtype']} {entry['width']}"
    if "skipped" in entry:
        return f"{what}: skipped, {entry['skipped']}"
    others = [f"; {rows} rows: {said}" for rows, said in entry["batches"].items() if said != "same"]
    return f"{what}: {entry['identity']} {entry['summary']} ({entry['seconds']} s){''.join(others)}"


if __name__ == "__main__":
    main()
