"""What the first call of an operator costs: its kernel to be compiled, in the disk cache, or brought by the package.

python benchmarks/first_call.py benchmarks/results/first-call-h200.jsonl
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.report import jsonl
from difftest.run import conditions

SCHEMA = "numba-kernels/first-call/1"
OPS = ("fused_add_rmsnorm", "silu_and_mul")
# A process of its own, so that nothing is loaded yet. Torch and its CUDA context are there before the clock starts.
PROGRAM = """
import sys, time
import torch
op = sys.argv[1]
x = torch.ones(16, 4096, dtype=torch.bfloat16, device="cuda")
inputs = [x] if op == "silu_and_mul" else [x, x.clone(), x[0].clone()] if op == "fused_add_rmsnorm" else [x, x[0].clone()]
torch.cuda.synchronize()
seconds = []
for step in ("import", "first call", "second call"):
    start = time.perf_counter()
    if step == "import":
        import numba_kernels
    else:
        getattr(numba_kernels, op)(*inputs)
        torch.cuda.synchronize()
    seconds.append(time.perf_counter() - start)
print(*seconds)
"""


STATES = ("compiled", "cached", "shipped")
STEPS = ("import", "first_call", "second_call")


def copy_of_the_package(folder: Path) -> Path:
    """The package without machine code of its own, in ``folder``."""
    source = Path(__file__).parent.parent / "numba_kernels"
    shutil.copytree(source, folder / "numba_kernels", ignore=shutil.ignore_patterns("cubins"))
    return folder


def python(package: Path, cache: Path, *words: str) -> str:
    """What a new process says that imports the package from this folder and has this disk cache."""
    found_first = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": found_first, "NUMBA_KERNELS_CACHE": str(cache)}
    done = subprocess.run([sys.executable, *words], env=environment, cwd=package, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{' '.join(words[-4:])}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def measure(op: str, package: Path, cache: Path) -> dict[str, float]:
    """Seconds of the import, the first call and the second, in a new process."""
    return dict(zip(STEPS, map(float, python(package, cache, "-c", PROGRAM, op).split()), strict=True))


def measure_states(op: str, bare: Path, brings: Path, repeats: int) -> dict[str, dict[str, Any]]:
    """For each state of a machine: the median of the repeats, and every first call."""
    found: dict[str, list[dict[str, float]]] = {state: [] for state in STATES}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as empty:
            found["compiled"].append(measure(op, bare, Path(cache)))
            found["cached"].append(measure(op, bare, Path(cache)))
            found["shipped"].append(measure(op, brings, Path(empty)))
            if any(Path(empty).iterdir()):
                raise click.ClickException(f"{op}: what the package brings was compiled all the same")
    return {
        state: {step: median(each[step] for each in repeated) for step in STEPS}
        | {"all": [each["first_call"] for each in repeated]}
        for state, repeated in found.items()
    }


def build(package: Path, cache: Path) -> dict[str, Any]:
    """Machine code for this GPU's architecture, put into the package: what the build says, its seconds and bytes."""
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    began = time.perf_counter()
    said = python(package, cache, "-m", "numba_kernels.build", "--arch", arch, "--ops", ",".join(OPS), "--dtypes", "bf16")
    files = [*(package / "numba_kernels" / "cubins").rglob("*.xz")]
    return {"said": said.strip(), "seconds": time.perf_counter() - began, "bytes": sum(file.stat().st_size for file in files)}


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def main(file: Path, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bare, brings = (copy_of_the_package(Path(folder, name)) for name in ("bare", "brings"))
        built = build(brings, Path(folder, "cache"))
        click.echo(f"{built['said']}: {built['seconds']:.0f} s, {built['bytes'] / 1e3:.0f} kB")
        head = conditions.head(SCHEMA, " ".join(sys.argv), torch.device("cuda"))
        found = {**head, "repeats": repeats, "build": built, "first_calls": []}
        for op in OPS:
            states = measure_states(op, bare, brings, repeats)
            found["first_calls"].append({"op": op, **states})
            jsonl.write(file, found, ["first_calls"])
            for state, seconds in states.items():
                click.echo(f"{op}, {state}: import {seconds['import']:.3f} s, first call {seconds['first_call']:.3f} s")


if __name__ == "__main__":
    main()
