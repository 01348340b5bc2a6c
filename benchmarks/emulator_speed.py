"""Rows per second of the CPU emulator beside Numba's own simulator, on kernels that both can run.

    python benchmarks/emulator_speed.py [--rows 400] [--width 4096] [--threads 64] [--json FILE]

The simulator has no warp shuffles, so the kernel it runs reduces in shared memory. The simulator runs in a process of its own
(``NUMBA_ENABLE_CUDASIM=1`` must be set before Numba is imported).
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda, float32

SCHEMA = "numba-kernels/emulator-speed/1"
SIMULATOR_ROWS = 2  # it runs a few rows a second


def make_tree(threads: int, width: int) -> Any:
    """RMSNorm of one row a block, its sum reduced in shared memory."""

    def tree_rmsnorm(x, weight, out, eps):
        row, t = cuda.blockIdx.x, cuda.threadIdx.x
        held = cuda.shared.array(width, float32)
        partial = cuda.shared.array(threads, float32)
        total = float32(0)
        for i in range(t, width, threads):
            held[i] = x[row, i]
            total += held[i] * held[i]
        partial[t] = total
        cuda.syncthreads()
        half = threads // 2
        while half > 0:
            if t < half:
                partial[t] += partial[t + half]
            cuda.syncthreads()
            half //= 2
        rstd = float32(1) / float32(math.sqrt(partial[0] / float32(width) + eps))
        for i in range(t, width, threads):
            out[row, i] = held[i] * rstd * weight[i]

    return tree_rmsnorm


def make_shuffled(threads: int, width: int) -> Any:
    """The same with warp shuffles."""
    warps = threads // 32

    def shuffled_rmsnorm(x, weight, out, eps):
        row, t = cuda.blockIdx.x, cuda.threadIdx.x
        held = cuda.shared.array(width, float32)
        partial = cuda.shared.array(32, float32)
        total = float32(0)
        for i in range(t, width, threads):
            held[i] = x[row, i]
            total += held[i] * held[i]
        for k in range(5):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 16 >> k)
        if t % 32 == 0:
            partial[t // 32] = total
        cuda.syncthreads()
        total = partial[t % 32] if t % 32 < warps else float32(0)
        for k in range(5):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 16 >> k)
        rstd = float32(1) / float32(math.sqrt(total / float32(width) + eps))
        for i in range(t, width, threads):
            out[row, i] = held[i] * rstd * weight[i]

    return shuffled_rmsnorm


def inputs(rows: int, width: int) -> tuple[Any, ...]:
    """x, weight, out, eps."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, width), np.float32)
    return x, rng.standard_normal(width, np.float32), np.zeros_like(x), np.float32(1e-6)


def check(x: np.ndarray, weight: np.ndarray, out: np.ndarray, eps: np.float32) -> None:
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + eps) * weight
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)


def time_simulator(threads: int, width: int) -> float:
    """Rows per second of Numba's simulator; call only where NUMBA_ENABLE_CUDASIM=1."""
    arguments = inputs(SIMULATOR_ROWS, width)
    kernel = cuda.jit(make_tree(threads, width))
    start = time.perf_counter()
    kernel[SIMULATOR_ROWS, threads](*arguments)
    elapsed = time.perf_counter() - start
    check(*arguments)
    return SIMULATOR_ROWS / elapsed


def time_emulator(make: Any, check_mode: str, rows: int, threads: int, width: int) -> tuple[float, float]:
    """(rows per second, seconds of the first launch)."""
    from numba_kernels.emulator import EmulatedKernel

    kernel = EmulatedKernel(make(threads, width), check=check_mode)
    arguments = inputs(rows, width)
    start = time.perf_counter()
    kernel.launch(1, threads, inputs(1, width))
    first = time.perf_counter() - start
    start = time.perf_counter()
    kernel.launch(rows, threads, arguments)
    elapsed = time.perf_counter() - start
    check(*arguments)
    return rows / elapsed, first


def time_operator(rows: int, width: int) -> tuple[float, float]:
    """(rows per second, seconds of the first call) of the project's bf16 ``fused_add_rmsnorm``."""
    import ml_dtypes

    from numba_kernels import fused_add_rmsnorm

    x, weight, _, _ = inputs(rows, width)
    x, weight = x.astype(ml_dtypes.bfloat16), weight.astype(ml_dtypes.bfloat16)
    residual = x.copy()
    start = time.perf_counter()
    fused_add_rmsnorm(x[:2].copy(), residual[:2].copy(), weight)
    first = time.perf_counter() - start
    start = time.perf_counter()
    fused_add_rmsnorm(x, residual, weight)
    return rows / (time.perf_counter() - start), first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--json", type=Path, help="result file; JSON Lines if it ends in .jsonl")
    parser.add_argument("--simulator", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulator:
        print(time_simulator(options.threads, options.width))
        return

    found: list[dict[str, Any]] = []

    def show(name: str, rate: float, first: float | None = None) -> None:
        found.append({"what": name, "rows_per_second": round(rate, 1), "first_launch": first and round(first, 2)})
        note = "" if first is None else f"   first launch {first:.2f} s"
        print(f"{name:<44}{rate:>10,.0f} rows/s{note}", flush=True)

    print(f"RMSNorm, width {options.width}, {options.threads} threads a block")
    command = [sys.executable, __file__, "--simulator", f"--width={options.width}", f"--threads={options.threads}"]
    done = subprocess.run(command, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        show("Numba's simulator, shared memory", float(done.stdout))
    else:
        print("Numba's simulator failed:", done.stderr.strip().splitlines()[-1])
    for check_mode in ("fast", "full"):
        for name, make in (("shared memory", make_tree), ("shuffles", make_shuffled)):
            rate, first = time_emulator(make, check_mode, options.rows, options.threads, options.width)
            show(f"emulator ({check_mode}), {name}", rate, first)
    rate, first = time_operator(options.rows, options.width)
    show("emulator (fast), bf16 fused_add_rmsnorm", rate, first)
    if options.json:
        write(options, found)


def write(options: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    """Leaves what was measured in a result file."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from difftest.report import jsonl
    from difftest.run.environment import environment

    document = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "environment": environment("cpu"),
        "width": options.width,
        "threads": options.threads,
        "speeds": found,
    }
    jsonl.write(options.json, document, ["speeds"])


if __name__ == "__main__":
    main()
