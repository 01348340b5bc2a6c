"""The mutants of the kernels that can't fail without a GPU, run on one: dependent launch and prefetch.

python benchmarks/mutants_on_gpu.py benchmarks/results/mutants-gpu-h200.jsonl

Each mutant runs in processes of its own, so that what it does to the GPU ends with it. Chains of calls, each of which reads what
the one before wrote, are launched while the GPU is held up, then run back to back, and must leave the bits that they leave with a
wait after each call.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import numba_kernels
from difftest.mutants.machine.child import last_answer
from difftest.mutants.machine.install import install
from difftest.mutants.machine.listing import by_name, mutants
from difftest.mutants.machine.proofs import only_on_a_gpu
from difftest.report import jsonl
from difftest.run import conditions
from numba_kernels.backend import shipped

SCHEMA = "numba-kernels/mutants-on-gpu/1"
CALLS = 200  # of a chain: the window in which a successor runs ahead of its predecessor is a microsecond or so
HELD_UP = 100_000_000  # cycles, 50 ms: the host launches the whole chain meanwhile, and no call waits for its launch
# Rows x width: part of a warp, a scalar row, a block with few and with many rows, prefetched rows, a cluster.
SHAPES = ((64, 64), (64, 111), (16, 4096), (2048, 4096), (8192, 8192), (4, 65536))
LIMIT = 120  # seconds for a mutant

Round = Callable[[Callable[[], None]], None]
Chain = Callable[[int, int], tuple[list[torch.Tensor], Round]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A mutant by its name, and where it was found wrong: empty where it was not."""

    name: str
    what: str
    found: str
    seconds: float


# --- chains of calls: each makes its buffers, and gives them with one round, which calls `after` after each call ------------


def added(rows: int, width: int) -> tuple[list[torch.Tensor], Round]:
    """The sum grows, and is normalised each time."""
    x, residual, weight = drawn(rows, width), drawn(rows, width), drawn(width)

    def turn(after: Callable[[], None]) -> None:
        numba_kernels.fused_add_rmsnorm(x, residual, weight)
        after()

    return [x, residual], turn


def alone(rows: int, width: int) -> tuple[list[torch.Tensor], Round]:
    """There and back."""
    x, y, weight = drawn(rows, width), drawn(rows, width), drawn(width)

    def turn(after: Callable[[], None]) -> None:
        numba_kernels.rmsnorm(x, weight, out=y)
        after()
        numba_kernels.rmsnorm(y, weight, out=x)
        after()

    return [x, y], turn


def gated(rows: int, width: int) -> tuple[list[torch.Tensor], Round]:
    """The output becomes gate and up of the next call."""
    halves, out, weight = drawn(rows, 2 * width), drawn(rows, width), drawn(width)

    def turn(after: Callable[[], None]) -> None:
        numba_kernels.silu_and_mul(halves, out=out)
        after()
        numba_kernels.rmsnorm(out, weight, out=halves[:, :width])
        after()
        numba_kernels.rmsnorm(out, weight, out=halves[:, width:])
        after()

    return [halves, out], turn


NORMS, GATED = (added, alone), (gated,)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def digests(chains: Sequence[Chain], after: Callable[[], None], say: Callable[[Any], None]) -> None:
    """The bits that each chain leaves, said as they come: (chain and shape) -> digest."""
    found: dict[str, str] = {}
    for chain, (rows, width) in ((chain, shape) for shape in SHAPES for chain in chains):
        torch.manual_seed(0)
        buffers, turn = chain(rows, width)
        turn(torch.cuda.synchronize)  # compiles
        torch.cuda._sleep(HELD_UP)
        for _ in range(CALLS):
            turn(after)
        torch.cuda.synchronize()
        words = b"".join(buffer.view(torch.int16).cpu().numpy().tobytes() for buffer in buffers)
        found[f"{chain.__name__} {rows}x{width}"] = hashlib.blake2b(words).hexdigest()
        say(found)


def nothing() -> None:
    """Called after a call that is not waited for."""


# --- a mutant in a process of its own -------------------------------------------------------------------------------------


def in_a_process(name: str, work: Callable[[Callable[[Any], None]], None]) -> tuple[Any, int]:
    """What `work` last said in a process that has the mutant (no name: the original), and how that ended."""

    def alone(say: Callable[[Any], None]) -> None:
        signal.alarm(LIMIT)
        with tempfile.TemporaryDirectory() as cache:  # the machine code of a mutant goes by its original's name
            os.environ["NUMBA_KERNELS_CACHE"] = cache
            shipped.FOLDER = Path(cache)
            if name:
                mutant = by_name(name)
                install(mutant.source.module, mutant.text())
            work(say)

    return last_answer(alone)


def try_on_gpu(name: str, right: dict[str, str]) -> Finding:
    """Whether one of the chains finds the mutant."""
    mutant, began = by_name(name), time.monotonic()
    chains = GATED if mutant.source.stem == "gated" else NORMS
    answer, exit_code = in_a_process(name, partial(digests, chains, nothing))
    found = ", ".join(chain for chain, bits in (answer or {}).items() if right[chain] != bits)
    if exit_code:
        found = f"the process ended with {exit_code} after {len(answer or ())} chains"
    return Finding(name, mutant.what, found, round(time.monotonic() - began, 2))


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--workers", default=12, show_default=True, help="Mutants at a time; each compiles its kernels on one core.")
def main(file: Path, workers: int) -> None:
    names = [mutant.name for mutant in mutants() if only_on_a_gpu(mutant)]
    right, ended = in_a_process("", partial(digests, NORMS + GATED, torch.cuda.synchronize))
    again, ended_too = in_a_process("", partial(digests, NORMS + GATED, nothing))
    if ended or ended_too or right != again:
        raise click.ClickException("the original itself is found wrong")
    findings = []
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for finding in pool.map(partial(try_on_gpu, right=right), names):
            findings.append(finding)
            click.echo(f"{finding.seconds:6.1f} s  {finding.name}: {finding.found or 'not found'}")
    head = in_a_process("", _say_conditions)[0]
    jsonl.write(file, {**head, "mutants": [asdict(finding) for finding in findings]}, ["mutants"])


def _say_conditions(say: Callable[[Any], None]) -> None:
    say(conditions.head(SCHEMA, " ".join(sys.argv), torch.device("cuda")))


if __name__ == "__main__":
    main()
