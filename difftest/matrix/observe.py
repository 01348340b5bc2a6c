"""One implementation's part of a matrix: the outputs of each case, and the contract it follows for each operator and dtype."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from difftest.cases.case import Case
from difftest.identify.infer import identify
from difftest.identify.report import document
from difftest.matrix.request import by_group
from difftest.providers.resolve import resolve
from difftest.run.call import call
from reference.formats import FORMATS
from reference.operators import operator
from reference.providers import Provider, Refused, Unavailable

UNAVAILABLE = f"raised {Unavailable.__name__}: "


@dataclass(frozen=True, slots=True)
class Task:
    """Something to ask of an implementation: the outputs of a case or, with `widths`, its contract for operator and dtype."""

    case: Case
    widths: tuple[int, ...] = ()

    @property
    def group(self) -> tuple[str, str]:
        """Operator and dtype."""
        return self.case.op, self.case.dtype

    def __str__(self) -> str:
        what = "identify" if self.widths else f"{self.case.rows} x {self.case.width}"
        return f"{self.case.op} {self.case.dtype}, {what}"


Answer = dict[str, Any]
"""`file` (the saved outputs) or `identified`; or else `skipped` or `failed`, a reason."""


def tasks(cases: Sequence[Case], widths: Sequence[int]) -> list[Task]:
    """The tasks of every implementation, an operator and dtype at a time, the identification after the cases."""
    found: list[Task] = []
    for group in by_group(cases).values():
        found += [*map(Task, group), Task(group[0], tuple(widths))]
    return found


@dataclass(slots=True)
class Answers:
    """The work of a pool of which each group is one implementation's tasks, by index; outputs are left in `folder`."""

    names: Sequence[str]
    todo: Sequence[Task]
    seed: int
    folder: Path

    def begin(self, group: int) -> Callable[[int], Answer]:
        """The answers of the implementation of that index."""
        provider, own = resolve(self.names[group]), self.folder / str(group)
        own.mkdir(exist_ok=True)
        before: list[tuple[str, str]] = []

        def do(index: int) -> Answer:
            task = self.todo[index]
            if before and before[-1] != task.group and "torch._dynamo" in sys.modules:
                torch.compiler.reset()  # beyond eight variants of one source it gives up, and runs eager code
            before.append(task.group)
            return answer(provider, task, self.seed, own / f"{index}.pt")

        return do

    def name(self, task: int) -> str:
        """The task."""
        return str(self.todo[task])


def answer(provider: Provider, task: Task, seed: int, file: Path) -> Answer:
    """Does the task. Whatever the implementation raises is part of the answer."""
    case = task.case
    refused = {width: provider.check(replace(case, width=width)) for width in task.widths or (case.width,)}
    if all(refused.values()):
        return {"skipped": next(iter(refused.values()))}
    try:
        function = provider.function(case.op)
        if task.widths:
            taken = [width for width in task.widths if not refused[width]]
            found = identify(operator(case.op), function, FORMATS[case.dtype].torch, taken, case.device, seed)
            found.refused = {**{width: why for width, why in refused.items() if why}, **found.refused}
            return {"identified": document(found)}
    except (Refused, Unavailable) as error:
        return {"skipped": str(error)}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # another's code may raise anything, SystemExit too
        return {"failed": f"raised {type(error).__name__}: {error}"}
    called = call(case, function, case.inputs())
    if called.refused:
        return {"skipped": called.refused}
    if called.failure.startswith(UNAVAILABLE):
        return {"skipped": called.failure.removeprefix(UNAVAILABLE)}
    if called.failure:
        return {"failed": called.failure}
    torch.save({name: tensor.cpu() for name, tensor in called.outputs.items()}, file)
    return {"file": str(file)}
