"""The bits of every operator on the emulator beside those on the GPU.

    python benchmarks/bits_on_gpu.py benchmarks/results/bits-h200.jsonl [--seconds 400] [--elements 1e9]

A group is an operator, a dtype and a contract. Each round draws one width for every group (1 to 131072; by turns uniform, uniform
in its logarithm, and an edge) and calls both on the same inputs of each regime in difftest/cases/regimes.py. Rounds go on until
the time is up. Each worker is one process with a GPU context of its own; where there is no GPU, the emulator is compared
with itself. Exit status 1: bits differ; 2: fewer elements than asked for.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["NUMBA_KERNELS_DEVICE"] = "cpu"  # host tensors go to the emulator, on a machine with a GPU too

import click
import torch

import numba_kernels
from difftest.cases import regimes
from difftest.cases.case import Case
from difftest.report import jsonl
from difftest.run import conditions
from reference.contracts import contract_of
from reference.formats import FORMATS, bits
from reference.operators import OPERATORS

SCHEMA = "numba-kernels/bits/1"
WIDEST = 131072
EDGES = (1, 2, 3, 111, 128, 4096, 4097, 16384, 33333, 65536, WIDEST)
ELEMENTS = 1 << 17  # of a call, or a row's
ROWS = 4096  # at most


@dataclass(frozen=True, slots=True)
class Group:
    """An operator, a dtype and a contract's code."""

    op: str
    dtype: str
    code: str

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.code}"


@dataclass(slots=True)
class Compared:
    """How many elements of how many calls were compared, how many have other bits, by regime, and the first of them."""

    calls: int = 0
    elements: int = 0
    differing: int = 0
    regimes: Counter[str] = field(default_factory=Counter)
    widths: list[int] = field(default_factory=list)
    first: str = ""

    def add(self, other: Compared) -> None:
        self.calls += other.calls
        self.elements += other.elements
        self.differing += other.differing
        self.regimes += other.regimes
        self.widths += other.widths
        self.first = self.first or other.first


def groups() -> list[Group]:
    return [Group(op.name, dtype, code) for op in OPERATORS.values() for dtype in FORMATS for code in op.codes]


def jobs(seed: int) -> Iterator[tuple[Group, int, int]]:
    """Group, width and seed, round after round without end."""
    draw = random.Random(seed)
    for turn in count():
        for group in draw.sample(groups(), len(groups())):
            edge = EDGES[turn // 3 % len(EDGES)]
            width = (draw.randint(1, WIDEST), min(WIDEST, int(2 ** draw.uniform(0, 17.01))), edge)[turn % 3]
            yield group, width, draw.getrandbits(31)


def cases(group: Group, width: int, seed: int) -> Iterator[Case]:
    """A case of every regime."""
    draw, op = random.Random(seed), OPERATORS[group.op]
    for regime in regimes.names(op):
        most = min(ROWS, max(1, ELEMENTS // width))
        rows = 4 if regime == "inf_nan" else int(most ** draw.random())  # a row of each kind
        contract = contract_of(op, group.code, **regimes.REGIMES[regime].numbers_of(op))
        weights = draw.choice((None, None, "fp32")) if op.vectors else None
        yield Case(group.op, group.dtype, (rows,), width, regime, draw.getrandbits(31), contract, weight_dtype=weights)


def compare(group: Group, width: int, seed: int, device: str) -> Compared:
    """Both ways of every regime at one width."""
    total = Compared(widths=[width])
    for case in cases(group, width, seed):
        inputs = case.inputs()
        here, there = outputs(case, inputs, "cpu"), outputs(case, inputs, device)
        total.calls += 1
        for name, words in here.items():
            other = (words != there[name]).flatten()
            total.elements += other.numel()
            found = int(other.sum())
            if found:
                total.differing += found
                total.regimes[case.regime] += found
                at = int(other.nonzero()[0])
                mine, theirs = (f"{int(side.flatten()[at]) & 0xFFFFFFFF:08x}" for side in (words, there[name]))
                where = f"{case}, {case.regime}, seed {case.seed}, weight {case.weight_dtype}: {name}[{at}]"
                total.first = total.first or f"{where} is {mine} on the emulator, {theirs} on {device}"
    return total


def outputs(case: Case, inputs: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    """The bits that a call on copies of the inputs leaves in each output."""
    op, tensors = case.operator, {name: tensor.to(device, copy=True) for name, tensor in inputs.items()}
    returned = getattr(numba_kernels, op.name)(*op.arguments(tensors, case.contract), contract=case.contract.code)
    left = {name: tensors[name] for name in op.mutated} if op.mutated else {"output": returned}
    return {name: bits(tensor.cpu()) for name, tensor in left.items()}


def one_thread() -> None:
    torch.set_num_threads(1)


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seconds", default=400.0, show_default=True, help="No round begins a call after this time.")
@click.option("--elements", default=1e9, show_default=True, help="How many are enough to pass.")
@click.option("--workers", default=os.cpu_count(), show_default="the CPU cores", type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
def main(file: Path, seconds: float, elements: float, workers: int, seed: int) -> None:
    began, device = time.monotonic(), "cuda" if torch.cuda.device_count() else "cpu"
    found = {group: Compared() for group in groups()}
    drawn, running, failures = jobs(seed), {}, []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=one_thread) as pool:
        while True:
            room = 2 * workers - len(running) if time.monotonic() - began < seconds else 0
            for group, width, own in islice(drawn, room):
                running[pool.submit(compare, group, width, own, device)] = group, width
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                group, width = running.pop(done)
                try:
                    found[group].add(done.result())
                except Exception as error:
                    failures.append(f"{group}, width {width}: {type(error).__name__}: {error}")
    entries = [{**asdict(group), **asdict(compared)} for group, compared in found.items()]
    for group, compared in found.items():
        by_regime = ", ".join(f"{regime} {n}" for regime, n in compared.regimes.items())
        click.echo(f"{group!s:<40} {compared.elements:>12,} elements, {compared.differing} differing {by_regime}")
    for text in [*(compared.first for compared in found.values() if compared.first), *failures[:20]]:
        click.echo(text)
    total = {key: sum(entry[key] for entry in entries) for key in ("calls", "elements", "differing")}
    wall = round(time.monotonic() - began, 1)
    counts = f"{total['elements']:,} elements, {total['calls']} calls, {len(failures)} failures, {wall} s"
    click.echo(f"{total['differing']} differing of {counts}")
    head = conditions.head(SCHEMA, " ".join(sys.argv), torch.device("cuda")) if device == "cuda" else {"schema": SCHEMA}
    document: dict[str, Any] = {**head, "seed": seed, "seconds": wall, **total, "failures": failures, "groups": entries}
    jsonl.write(file, document, ["groups"])
    sys.exit(1 if total["differing"] or failures else 2 if total["elements"] < elements else 0)


if __name__ == "__main__":
    main()
