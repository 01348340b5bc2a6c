"""The GPU's approximate functions over all inputs: tables of one period of each, and the proof that the rest follows from it.

    python benchmarks/approx_tables.py FOLDER           measure; writes approx.jsonl and NAME.xz of each function's period

`rsqrt.approx.f32`, `rcp.approx.ftz.f32`, `ex2.approx.f32` and `ex2.approx.ftz.f32` are what the kernels' PTX has. Each is taken
over one period and compared with what follows from that over all 2^32 inputs; an input whose result does not follow is an
exception, counted by sign and exponent. Sums over all inputs of `exp`, `erfc` and the activations, by blocks of 2^20 inputs, say
whether another way to compute them has the same bits everywhere. About 20 s on one H200.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numba import cuda, float32, int32, int64, types, uint32, uint64
from numba.extending import intrinsic

sys.path.insert(0, str(Path(__file__).parent.parent))

import math

from numba_kernels.backend.arithmetic import _ptx, _unary, exp2_approx, reciprocal_approx, rsqrt
from numba_kernels.backend.codegen import I32
from numba_kernels.backend.conversions import float_from_bits
from numba_kernels.kernels.activations import ACTIVATIONS, make_activation, make_rounding

SCHEMA = "numba-kernels/approx-tables/1"
BLOCKS, THREADS, CHUNK = 4096, 256, 1 << 20  # a grid takes 2^20 inputs at a step, or a block its own 2^20
SPECIAL = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000002, 0x00000003, 0x00400000, 0x007FFFFF, 0x807FFFFF, 0x00800000,
    0x80800000, 0x3F800000, 0xBF800000, 0x7E800000, 0x7E800001, 0xFE800000, 0x7F000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0xFFC00000, 0xFFFFFFFF, 0x42FE0000, 0x42FFFFFF, 0x43000000, 0xC2FC0000,
    0xC2FC0001, 0xC2FDFFFF, 0xC2FE0000, 0xC2FF0000, 0xC3000000, 0xC3140000, 0xC3150000, 0xC3158000, 0xC3160000, 0xC3170000,
    0x33800000, 0xB3800000, 0x34000000,
]  # fmt: skip

exp2_approx_ftz = _unary(_ptx("ex2.approx.ftz.f32 $0, $1;"), _ptx(""))


@intrinsic
def bits_of(typingctx, x):
    """The bits of an fp32 value."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), codegen


# --- what follows from a period -----------------------------------------------------------------------------------------------

NAN, INF, SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000


@cuda.jit(device=True, inline="always")
def rsqrt_rule(bits, period):
    """`period`: the results over [1, 4)."""
    magnitude = bits & int64(0x7FFFFFFF)
    if magnitude > INF:
        return int64(NAN)
    if magnitude == 0:
        return int64(INF) | (bits & int64(SIGN))
    if bits >= SIGN:
        return int64(NAN)
    if magnitude == INF:
        return int64(0)
    exponent = magnitude >> 23
    if exponent == 0:
        exponent = int64(1)
        while magnitude < 0x800000:
            magnitude <<= 1
            exponent -= 1
    exponent -= 127
    odd = exponent & 1
    return int64(period[(odd << 23) | (magnitude & 0x7FFFFF)]) - (((exponent - odd) // 2) << 23)


@cuda.jit(device=True, inline="always")
def rcp_ftz_rule(bits, period):
    """`period`: the results over [1, 2)."""
    magnitude, sign = bits & int64(0x7FFFFFFF), bits & int64(SIGN)
    if magnitude > INF:
        return int64(NAN)
    if magnitude == INF:
        return sign
    if magnitude < 0x800000:
        return int64(INF) | sign
    found = int64(period[magnitude & 0x7FFFFF]) - (((magnitude >> 23) - 127) << 23)
    return (found if found >= 0x800000 else int64(0)) | sign


@cuda.jit(device=True, inline="always")
def ex2_ftz_rule(bits, period):
    """`period`: the results over [0, 1) and over (-1, 0], from 0 outwards."""
    magnitude, negative = bits & int64(0x7FFFFFFF), bits >> 31
    if magnitude > INF:
        return int64(NAN)
    if magnitude >= 0x43800000:  # 256
        return int64(0) if negative else int64(INF)
    shift = (magnitude >> 23) - 127
    digits = (magnitude & 0x7FFFFF) | 0x800000
    if magnitude < 0x800000 or shift < -24:
        digits = int64(0)
        shift = int64(0)
    fixed = digits << shift if shift >= 0 else digits >> -shift  # 23 bits after the point, cut off
    whole, part = fixed >> 23, fixed & 0x7FFFFF
    found = int64(period[(negative << 23) | part]) + ((-whole if negative else whole) << 23)
    if found >= INF:
        return int64(INF)
    return found if found >= 0x800000 else int64(0)


@cuda.jit(device=True, inline="always")
def ex2_rule(bits, period):
    """Below -126 the square of the result for half the argument, subnormal results kept."""
    if bits > 0xC2FC0000 and bits <= 0xFF800000:
        half = float_from_bits(ex2_ftz_rule(int64(bits_of(float_from_bits(bits) * float32(0.5))), period))
        return int64(bits_of(half * half))
    return ex2_ftz_rule(bits, period)


def rsqrt_arguments() -> np.ndarray:
    return np.arange(0x3F800000, 0x40800000, dtype=np.uint32)


def rcp_arguments() -> np.ndarray:
    return np.arange(0x3F800000, 0x40000000, dtype=np.uint32)


def ex2_arguments() -> np.ndarray:
    part = (np.arange(1 << 23) * 2.0**-23).astype(np.float32)
    return np.concatenate([part, -part]).view(np.uint32)


APPROXIMATIONS: dict[str, tuple[Any, Any, Callable[[], np.ndarray]]] = {
    "rsqrt.approx.f32": (rsqrt, rsqrt_rule, rsqrt_arguments),
    "rcp.approx.ftz.f32": (reciprocal_approx, rcp_ftz_rule, rcp_arguments),
    "ex2.approx.ftz.f32": (exp2_approx_ftz, ex2_ftz_rule, ex2_arguments),
    "ex2.approx.f32": (exp2_approx, ex2_rule, ex2_arguments),
}


# --- kernels ------------------------------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def mixed(value):
    """splitmix64's finaliser."""
    value = (value ^ (value >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> uint64(27))) * uint64(0x94D049BB133111EB)
    return value ^ (value >> uint64(31))


def make_evaluate(function: Any) -> Any:
    """`kernel(arguments, results)`, both bits."""

    @cuda.jit
    def evaluate(arguments, results):
        for i in range(cuda.grid(1), arguments.size, cuda.gridsize(1)):
            results[i] = bits_of(function(float_from_bits(int64(arguments[i]))))

    return evaluate


def make_sums(function: Any) -> Any:
    """`kernel(sums)`: to each 2^20 inputs the sum of a hash of input and result."""

    @cuda.jit
    def sums_of(sums):
        total = uint64(0)
        for i in range(cuda.threadIdx.x, CHUNK, THREADS):
            bits = int64(cuda.blockIdx.x) * CHUNK + i
            word = bits_of(function(float_from_bits(bits)))
            total += mixed((uint64(bits) << uint64(32)) | uint64(word))
        cuda.atomic.add(sums, cuda.blockIdx.x, total)

    return sums_of


def make_compare(function: Any, rule: Any) -> Any:
    """`kernel(period, counts, seen, examples)`: exceptions by the input's upper 9 bits, and the first of them."""

    @cuda.jit
    def compare(period, counts, seen, examples):
        for chunk in range(BLOCKS):
            bits = int64(chunk) * CHUNK + cuda.grid(1)
            got = int64(bits_of(function(float_from_bits(bits))))
            want = rule(bits, period)
            if got != want:
                cuda.atomic.add(counts, bits >> 23, uint64(1))
                k = cuda.atomic.add(seen, 0, int32(1))
                if k < examples.shape[0]:
                    examples[k, 0] = uint32(bits)
                    examples[k, 1] = uint32(got)
                    examples[k, 2] = uint32(want)

    return compare


# --- composed functions, whose steps are the compiler's -----------------------------------------------------------------------


def composed() -> dict[str, Any]:
    """name -> device function of one fp32 value."""

    @cuda.jit(device=True, inline="always")
    def exp(x):
        return math.exp(x)

    @cuda.jit(device=True, inline="always")
    def erfc(x):
        return math.erfc(x)

    @cuda.jit(device=True, inline="always")
    def unrounded(x):
        return x

    found = {"exp": exp, "erfc": erfc}
    for name in ACTIVATIONS:
        for storage in ("bf16", "fp32"):
            active, _ = make_activation(name, storage, make_rounding("S0", unrounded))
            found[f"{name} {storage}"] = _with_parameters(active)
    return found


def _with_parameters(active: Any) -> Any:
    @cuda.jit(device=True, inline="always")
    def function(x):
        return active(x, float32(1.702), float32(7.0))

    return function


# --- measuring ----------------------------------------------------------------------------------------------------------------


def evaluated(function: Any, arguments: np.ndarray) -> np.ndarray:
    results = cuda.device_array(arguments.size, np.uint32)
    make_evaluate(function)[BLOCKS, THREADS](cuda.to_device(arguments), results)
    return results.copy_to_host()


def sums(function: Any) -> np.ndarray:
    found = cuda.to_device(np.zeros(BLOCKS, np.uint64))
    make_sums(function)[BLOCKS, THREADS](found)
    return found.copy_to_host()


def measure(name: str, folder: Path) -> dict[str, Any]:
    """One approximate function: its period, exceptions to it, its special values."""
    function, rule, arguments = APPROXIMATIONS[name]
    period = evaluated(function, arguments())
    counts, seen = cuda.to_device(np.zeros(512, np.uint64)), cuda.to_device(np.zeros(1, np.int32))
    examples = cuda.to_device(np.zeros((64, 3), np.uint32))
    make_compare(function, rule)[BLOCKS, THREADS](cuda.to_device(period), counts, seen, examples)
    total = counts.copy_to_host()
    steps = np.diff(period.astype(np.int64), prepend=0)
    (folder / f"{name}.xz").write_bytes(lzma.compress(zigzag(steps), preset=6))
    special = evaluated(function, np.array(SPECIAL, np.uint32))
    return {
        "function": name,
        "inputs": 1 << 32,
        "exceptions": int(total.sum()),
        "exceptions_by_upper_bits": {f"{k:03x}": int(n) for k, n in enumerate(total) if n},
        "examples": [[f"{word:08x}" for word in row] for row in examples.copy_to_host() if row.any()],
        "special": {f"{x:08x}": f"{y:08x}" for x, y in zip(SPECIAL, special.tolist(), strict=True)},
        "period": period.size,
        "sha256": hashlib.sha256(period.tobytes()).hexdigest(),
        "sums": [f"{s:016x}" for s in sums(function).tolist()],
    }


def zigzag(steps: np.ndarray) -> bytes:
    """Small signed steps as bytes, each larger one as 255 and eight bytes behind them all."""
    small = np.where(steps < 0, -2 * steps - 1, 2 * steps)
    large = small >= 255
    return np.where(large, 255, small).astype(np.uint8).tobytes() + small[large].astype("<i8").tobytes()


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
def main(folder: Path | None) -> None:
    from difftest.report import jsonl
    from difftest.run import conditions

    folder = folder or Path(os.environ.get("OUT", "approx"))
    folder.mkdir(parents=True, exist_ok=True)
    import torch

    found = {**conditions.head(SCHEMA, " ".join(sys.argv), torch.device("cuda")), "approximations": [], "composed": []}
    path = folder / "approx.jsonl"
    for name in APPROXIMATIONS:
        began = time.monotonic()
        entry = measure(name, folder)
        found["approximations"].append(entry)
        click.echo(
            f"{time.monotonic() - began:5.1f} s  {name}: {entry['exceptions']} exceptions of 2^32, by sign and exponent "
            f"{entry['exceptions_by_upper_bits']}"
        )
        click.echo(f"         {entry['sha256']}  first exceptions {entry['examples'][:4]}")
        jsonl.write(path, found, ["approximations", "composed"])
    for name, function in composed().items():
        began = time.monotonic()
        found["composed"].append({"function": name, "sums": [f"{s:016x}" for s in sums(function).tolist()]})
        click.echo(f"{time.monotonic() - began:5.1f} s  {name}: {found['composed'][-1]['sums'][1]}")
        jsonl.write(path, found, ["approximations", "composed"])


if __name__ == "__main__":
    main()
