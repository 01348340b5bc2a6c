"""One implementation's calls: the outputs of each cell, and the contract it follows. Runs in a process of its own.

Imports torch, `difftest`'s calls, candidates and identify.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from difftest import interrupts
from difftest.calls import BadOutput
from difftest.candidates import resolve
from difftest.dtypes import DTYPES
from difftest.identify.infer import identify, observe
from difftest.identify.report import document
from difftest.matrix.plan import Cell
from reference.operators import OPERATORS
from reference.providers import Provider, Refused, Unavailable


@dataclass(frozen=True, slots=True)
class Task:
    """Something to ask of an implementation: its outputs in a cell, or (no cell) its contract for an operator and dtype."""

    op: str
    dtype: str
    widths: tuple[int, ...] = ()
    cell: Cell | None = None

    def __str__(self) -> str:
        what = f"{self.cell.rows} x {self.cell.width}" if self.cell else "identify"
        return f"{self.op} {self.dtype}, {what}"


Answer = dict[str, Any]
"""`file` (the saved outputs) or `identified`; or else `skipped` or `failed`, a reason."""


def tasks(cells: Sequence[Cell], widths: Sequence[int]) -> list[Task]:
    """The tasks of every implementation, an operator and dtype at a time."""
    found: list[Task] = []
    for index, cell in enumerate(cells):
        found.append(Task(cell.op, cell.dtype, (), cell))
        following = cells[index + 1] if index + 1 < len(cells) else None
        if following is None or (following.op, following.dtype) != (cell.op, cell.dtype):
            found.append(Task(cell.op, cell.dtype, tuple(widths)))
    return found


def answer(provider: Provider, task: Task, device: str, seed: int, file: Path) -> Answer:
    """Does the task. Whatever the implementation raises is part of the answer."""
    where = torch.device(device)
    dtype = DTYPES[task.dtype].storage
    widths = (task.cell.width,) if task.cell else task.widths
    refused = {width: provider.refuses(task.op, dtype, width, where) for width in widths}
    reason = None if provider.claims(task.op) else f"has no {task.op}"
    if reason or all(refused.values()):
        return {"skipped": reason or next(iter(refused.values()))}
    try:
        function = provider.function(task.op)
        if task.cell is None:
            taken = [width for width in widths if not refused[width]]
            found = identify(OPERATORS[task.op], function, dtype, taken, device, seed)
            found.refused = {**{width: why for width, why in refused.items() if why}, **found.refused}
            return {"identified": document(found)}
        inputs = task.cell.inputs(device)
        outputs = observe(OPERATORS[task.op], function, inputs, 1e-6)
        torch.save({name: tensor.cpu() for name, tensor in outputs.items()}, file)
        return {"file": str(file)}
    except (Refused, Unavailable) as error:
        return {"skipped": str(error)}
    except BadOutput as error:
        return {"failed": str(error)}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a stranger's code may raise anything, SystemExit too
        return {"failed": f"raised {type(error).__name__}: {error}"}


def work(name: str, todo: Sequence[tuple[int, Task]], device: str, seed: int, folder: str, pipe: Connection) -> None:
    """A process: sends (index, None) as a task starts and (index, answer) as it ends, then closes the pipe."""
    interrupts.left_to_the_parent()
    torch.set_num_threads(1)
    provider = resolve(name)
    group = None
    for index, task in todo:
        if group not in (None, (task.op, task.dtype)) and "torch._dynamo" in sys.modules:
            torch.compiler.reset()  # beyond eight variants of one source it gives up, and runs eager code
        group = (task.op, task.dtype)
        pipe.send((index, None))
        pipe.send((index, answer(provider, task, device, seed, Path(folder) / f"{index}.pt")))
    pipe.close()
