"""What the first call of an operator costs: with its kernel to be compiled, and with the machine code in the disk cache.

python benchmarks/first_call.py benchmarks/results/first-call-h200.jsonl
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

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


def measure(op: str, cache: str) -> dict[str, float]:
    """Seconds of the import, the first call and the second, in a new process with ``cache`` as its disk cache."""
    environment = {**os.environ, "NUMBA_KERNELS_CACHE": cache}
    done = subprocess.run([sys.executable, "-c", PROGRAM, op], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{op}: {done.stderr.strip().splitlines()[-1]}")
    return dict(zip(("import", "first_call", "second_call"), map(float, done.stdout.split()), strict=True))


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def main(file: Path) -> None:
    found = {**conditions.head(SCHEMA, " ".join(sys.argv), torch.device("cuda")), "first_calls": []}
    for op in OPS:
        with tempfile.TemporaryDirectory() as cache:
            compiled, cached = measure(op, cache), measure(op, cache)
        found["first_calls"].append({"op": op, "compiled": compiled, "cached": cached})
        jsonl.write(file, found, ["first_calls"])
        click.echo(f"{op}: {compiled['first_call']:.2f} s, {cached['first_call']:.2f} s from the disk cache")


if __name__ == "__main__":
    main()
