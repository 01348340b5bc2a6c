"""The command `ledger`: the bytes that an operator moves, fused and split, with and without its contract."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from difftest import options
from difftest.cases.ledger import Form, Ledger, ledger
from difftest.errors import one_of
from difftest.report import files
from difftest.report.table import Table, terminal
from difftest.report.terminal import console
from reference.formats import FORMATS
from reference.operators import OPERATORS


def show(*, op: str, rows: int, width: int, dtype: str, json: Path | None = None) -> int:
    """Prints the ledger of the operators named, and writes it as JSON where a file is given. Returns the exit status."""
    ops = options.names("--op", op, OPERATORS)
    if dtype not in FORMATS:
        raise one_of("--dtype", dtype, FORMATS)
    options.at_least("--rows", rows, 1)
    options.at_least("--width", width, 1)
    if json:
        files.check_writable("--json", json)
    itemsize = FORMATS[dtype].itemsize
    screen = console()
    documents = []
    for name in ops:
        by_row = ledger(name, rows, width, itemsize)
        by_launch = ledger(name, rows, width, itemsize, weight_per_row=False)
        screen.print(terminal(_table(name, dtype, rows, width, by_row, by_launch), title_style=""))
        documents.append(_document(name, by_row, by_launch))
    elements = rows * width
    screen.print(
        f"N = {elements:,} elements. Keeping the contract in two kernels costs 8N = {8 * elements:,} bytes: the fp32 "
        "intermediate, written and read once more. Fused, it stays on the chip, in about as many bytes of shared memory or in "
        "registers. Weight once: the total where the weight is read once a launch."
    )
    screen.print("Logical bytes, not measured traffic: no caches, transactions or spills.", style="dim")
    if json:
        files.write_json(
            json,
            {
                "schema": "numba-kernels/ledger/1",
                "rows": rows,
                "width": width,
                "dtype": dtype,
                "operators": documents,
            },
        )
    return 0


def _table(name: str, storage: str, rows: int, width: int, by_row: Ledger, by_launch: Ledger) -> Table:
    lines = []
    for form, once in zip(by_row.forms, by_launch.forms, strict=True):
        more = form.total - by_row.fused.total
        lines.append(
            (
                form.name,
                form.contract,
                f"{form.read:,}",
                f"{form.written:,}",
                f"{form.total:,}",
                f"{more / by_row.fused.total:+.0%}" if more else "",
                f"{once.total:,}",
            )
        )
    columns = ("form", "contract", "read", "written", "total", "over fused", "weight once")
    title = f"{name} {storage} {rows}x{width}: bytes, the weight once a row"
    return Table(title, columns, tuple(lines), left=("contract",))


def _document(name: str, by_row: Ledger, by_launch: Ledger) -> dict[str, Any]:
    def totals(forms: Iterable[Form]) -> list[dict[str, Any]]:
        return [
            {
                "form": f.name,
                "contract": f.contract,
                "kernels": f.kernels,
                "read": f.read,
                "written": f.written,
                "total": f.total,
            }
            for f in forms
        ]

    return {"op": name, "weight_per_row": totals(by_row.forms), "weight_per_launch": totals(by_launch.forms)}
