"""The GPU's approximate functions over all inputs: their coefficients, and the proof that those give every result.

    python benchmarks/approx_tables.py measure FOLDER        on a GPU: sm_90.json and sums.jsonl
    python benchmarks/approx_tables.py emulate sums.jsonl    on a CPU: whether the emulator's functions have the same sums

The kernels' PTX has `rsqrt.approx.f32`, `rcp.approx.ftz.f32`, `ex2.approx.f32` and `ex2.approx.ftz.f32`. Each is taken over one
period, whose coefficients are inferred where it is not the period that numba_kernels/backend/sm_90.json knows. What
numba_kernels/backend/approximate.py makes of that file is compared with each instruction over all 2^32 inputs: an input with
another result is an exception, counted by sign and exponent.

Sums over all inputs of these, of `exp`, `erfc` and of the activations, a sum for each 2^24 inputs, say whether any other way to
compute them has the same bits everywhere. About 30 s on one H200, about 15 minutes on two CPU cores.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from numba import cuda, float32, int32, int64, types, uint32, uint64
from numba.extending import intrinsic

sys.path.insert(0, str(Path(__file__).parent.parent))

from numba_kernels.backend import approximate
from numba_kernels.backend.arithmetic import exp2_approx, exp2_approx_ftz, reciprocal_approx, rsqrt
from numba_kernels.backend.codegen import I32
from numba_kernels.backend.conversions import float_from_bits
from numba_kernels.kernels import elementary
from numba_kernels.kernels.activations import ACTIVATIONS, make_activation, make_rounding

SCHEMA = "numba-kernels/approximate-sums/1"
THREADS = 256
BLOCKS, CHUNK = 4096, 1 << 20  # inputs of a block
SHARES = 256  # sums of a function
SPECIAL = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000002, 0x00000003, 0x00400000, 0x007FFFFF, 0x807FFFFF, 0x00800000,
    0x80800000, 0x3F800000, 0xBF800000, 0x7E800000, 0x7E800001, 0xFE800000, 0x7F000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0xFFC00000, 0xFFFFFFFF, 0x42FE0000, 0x42FFFFFF, 0x43000000, 0xC2FC0000,
    0xC2FC0001, 0xC2FDFFFF, 0xC2FE0000, 0xC2FF0000, 0xC3000000, 0xC3140000, 0xC3150000, 0xC3158000, 0xC3160000, 0xC3170000,
    0x33800000, 0xB3800000, 0x34000000,
]  # fmt: skip


@intrinsic
def bits_of(typingctx, x):
    """The bits of an fp32 value."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), codegen


# --- the functions --------------------------------------------------------------------------------------------------------------


def _device(function: Any) -> Any:
    return cuda.jit(device=True, inline="always")(function)


rsqrt_rule, rcp_ftz_rule, ex2_ftz_rule = (
    _device(each.make(_device)) for each in (approximate.RSQRT, approximate.RECIPROCAL_FTZ, approximate.EXP2_FTZ)
)


@cuda.jit(device=True, inline="always")
def ex2_rule(bits):
    """As `approximate.exp2`."""
    if bits > 0xC2FC0000 and bits <= 0xFF800000:  # below -126
        half = float_from_bits(ex2_ftz_rule(int64(bits_of(float_from_bits(bits) * float32(0.5)))))
        return int64(bits_of(half * half))
    return ex2_ftz_rule(bits)


def rsqrt_arguments() -> np.ndarray:
    return np.arange(0x3F800000, 0x40800000, dtype=np.uint32)


def rcp_arguments() -> np.ndarray:
    return np.arange(0x3F800000, 0x40000000, dtype=np.uint32)


def ex2_arguments() -> np.ndarray:
    return (np.arange(1 << 23) * 2.0**-23).astype(np.float32).view(np.uint32)


# name in sm_90.json -> the instruction it is measured with, the arguments of its period, its segments, the least result's binade
PERIODS: dict[str, tuple[Any, Callable[[], np.ndarray], int, int]] = {
    "rsqrt": (rsqrt, rsqrt_arguments, 128, 0x3F000000),
    "rcp": (reciprocal_approx, rcp_arguments, 128, 0x3F000000),
    "ex2": (exp2_approx_ftz, ex2_arguments, 64, 0x3F800000),
}
# instruction -> its function, and what is to be the same
INSTRUCTIONS: dict[str, tuple[Any, Any]] = {
    "rsqrt.approx.f32": (rsqrt, rsqrt_rule),
    "rcp.approx.ftz.f32": (reciprocal_approx, rcp_ftz_rule),
    "ex2.approx.ftz.f32": (exp2_approx_ftz, ex2_ftz_rule),
    "ex2.approx.f32": (exp2_approx, ex2_rule),
}


def functions() -> dict[str, Any]:
    """name -> device function of one fp32 value: what there are sums of."""

    @cuda.jit(device=True, inline="always")
    def unrounded(x):
        return x

    found = {name: function for name, (function, _) in INSTRUCTIONS.items()}
    found |= {"exp": elementary.exp, "erfc": elementary.erfc}
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


# --- kernels --------------------------------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def mixed(value):
    """splitmix64's finaliser."""
    value = (value ^ (value >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> uint64(27))) * uint64(0x94D049BB133111EB)
    return value ^ (value >> uint64(31))


def make_evaluate(function: Any) -> Any:
    """`kernel(arguments, results)`, both bits."""

    def evaluate(arguments, results):
        for i in range(cuda.grid(1), arguments.size, cuda.gridsize(1)):
            results[i] = bits_of(function(float_from_bits(int64(arguments[i]))))

    return evaluate


def make_sums(function: Any) -> Any:
    """`kernel(sums, first)`: of a hash of input and result, a sum a thread; a block has 2^20 inputs, from `first` * 2^20 on."""

    def sums_of(sums, first):
        start = (int64(first) + cuda.blockIdx.x) * CHUNK
        total = uint64(0)
        for i in range(cuda.threadIdx.x, CHUNK, THREADS):
            bits = int64(start + i)
            word = bits_of(function(float_from_bits(bits)))
            word = uint32(0x7FFFFFFF) if (word & uint32(0x7FFFFFFF)) > uint32(0x7F800000) else word
            total += mixed((uint64(bits) << uint64(32)) | uint64(word))
        sums[cuda.blockIdx.x * THREADS + cuda.threadIdx.x] = total

    return sums_of


def make_compare(function: Any, rule: Any) -> Any:
    """`kernel(counts, seen, examples)`: exceptions by the input's upper 9 bits, and the first of them."""

    def compare(counts, seen, examples):
        for chunk in range(BLOCKS):
            bits = int64(chunk) * CHUNK + cuda.grid(1)
            got = int64(bits_of(function(float_from_bits(bits))))
            want = rule(bits)
            if got != want:
                cuda.atomic.add(counts, bits >> 23, uint64(1))
                k = cuda.atomic.add(seen, 0, int32(1))
                if k < examples.shape[0]:
                    examples[k, 0] = uint32(bits)
                    examples[k, 1] = uint32(got)
                    examples[k, 2] = uint32(want)

    return compare


# --- on a GPU -------------------------------------------------------------------------------------------------------------------


def evaluated(function: Any, arguments: np.ndarray) -> np.ndarray:
    results = cuda.device_array(arguments.size, np.uint32)
    cuda.jit(make_evaluate(function))[BLOCKS, THREADS](cuda.to_device(arguments), results)
    return results.copy_to_host()


def sums(function: Any) -> list[str]:
    found = cuda.to_device(np.zeros(BLOCKS * THREADS, np.uint64))
    cuda.jit(make_sums(function))[BLOCKS, THREADS](found, 0)
    return shares(found.copy_to_host())


def shares(each: np.ndarray) -> list[str]:
    """A sum for each 2^24 inputs."""
    return [f"{share:016x}" for share in each.reshape(-1, BLOCKS // SHARES * THREADS).sum(1, dtype=np.uint64).tolist()]


def inferred(period: np.ndarray, segments: int, least: int) -> list[list[int]]:
    """c0, c1, c2 of each segment, by least squares: c1 and c2 come out whole. ValueError where they don't give the period."""
    count = period.size // segments
    d = np.arange(count, dtype=np.int64)
    square = approximate.make_square(count.bit_length() - 9)(d)
    basis = np.linalg.pinv(np.stack([np.ones(count), d / count, square / count], 1))
    found = []
    for k in range(segments):
        results = period[k * count : (k + 1) * count].astype(np.int64) - least
        c1, c2 = (round(c) for c in (basis @ results)[1:])
        rest = results * count - c1 * d - c2 * square
        first = 1 if results[0] == 1 << 23 else 0  # the root of a power of 4 is exact, whatever the quadratic gives
        low, high = int(rest[first:].max()), int(rest.min()) + count
        if low >= high:
            raise ValueError(f"segment {k}: no coefficients give its results")
        step = next(1 << n for n in range(count.bit_length(), -1, -1) if -(-low >> n) << n < high)  # the roundest there is
        found.append([-(-low // step) * step + least * count, c1, c2])
    return found


def exceptions(name: str) -> dict[str, Any]:
    """Of all inputs of an instruction, those for which approximate.py has another result; its results for special values."""
    function, rule = INSTRUCTIONS[name]
    counts, seen = cuda.to_device(np.zeros(512, np.uint64)), cuda.to_device(np.zeros(1, np.int32))
    examples = cuda.to_device(np.zeros((16, 3), np.uint32))
    cuda.jit(make_compare(function, rule))[BLOCKS, THREADS](counts, seen, examples)
    total = counts.copy_to_host()
    results = evaluated(function, np.array(SPECIAL, np.uint32)).tolist()
    return {
        "inputs": 1 << 32,
        "exceptions": int(total.sum()),
        "by_upper_bits": {f"{k:03x}": int(n) for k, n in enumerate(total) if n},
        "examples": [[f"{word:08x}" for word in row] for row in examples.copy_to_host() if row.any()],
        "special": {f"{x:08x}": f"{y:08x}" for x, y in zip(SPECIAL, results, strict=True)},
    }


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command("measure")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=lambda: os.environ.get("OUT", "sm_90"))
def measure(folder: Path) -> None:
    """Measures a GPU."""
    import torch

    from difftest.report import jsonl
    from difftest.run import conditions

    folder.mkdir(parents=True, exist_ok=True)
    began, head = time.monotonic(), conditions.head(SCHEMA, " ".join(sys.argv), torch.device("cuda"))

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:5.1f} s  {text}")

    known = approximate.measured()
    document = {**head, "period_sha256": {}, "coefficients": {}, "instructions": {}}
    for name, (function, arguments, segments, least) in PERIODS.items():
        period = evaluated(function, arguments())
        digest = hashlib.sha256(period.tobytes()).hexdigest()
        document["period_sha256"][name] = digest
        if digest == known["period_sha256"][name]:
            document["coefficients"][name] = known["coefficients"][name]
            say(f"{name}: every result of the period is as in {approximate.FILE.name}")
        else:
            say(f"{name}: another period than in {approximate.FILE.name}: {digest}")
            (folder / f"{name}.xz").write_bytes(lzma.compress(np.diff(period, prepend=np.uint32(0)).tobytes(), preset=1))
            document["coefficients"][name] = inferred(period, segments, least)
    for name in INSTRUCTIONS:
        found = document["instructions"][name] = exceptions(name)
        say(f"{name}: {found['exceptions']} exceptions {found['by_upper_bits']} {found['examples'][:3]}")
    text = re.sub(r"\[\s+(-?\d+),\s+(-?\d+),\s+(-?\d+)\s+\]", r"[\1, \2, \3]", json.dumps(document, indent=1))
    (folder / approximate.FILE.name).write_text(text + "\n")
    document = {**head, "sums": []}
    for name, function in functions().items():
        document["sums"].append({"function": name, "sums": sums(function)})
        say(f"{name}: {document['sums'][-1]['sums'][0xBF]}")
    jsonl.write(folder / "sums.jsonl", document, ["sums"])


# --- on the emulator ------------------------------------------------------------------------------------------------------------


def emulated(function: Any, share: int, chunks: int = BLOCKS // SHARES) -> str:
    """One of the sums, or with fewer chunks the beginning of one, on the emulator."""
    from numba_kernels.emulator import EmulatedKernel

    found = np.zeros(chunks * THREADS, np.uint64)
    EmulatedKernel(make_sums(function)).launch(chunks, THREADS, (found, np.int64(share * (BLOCKS // SHARES))))
    return f"{int(found.sum(dtype=np.uint64)):016x}"


def differing(entry: dict[str, Any], wanted: list[int]) -> Iterator[int]:
    """Which of the wanted sums of an entry of sums.jsonl are others on the emulator."""
    function = functions()[entry["function"]]
    for share in wanted:
        if emulated(function, share) != entry["sums"][share]:
            yield share


@main.command("emulate")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--every", default=1, show_default=True, help="Only every so many of the 256 sums of a function.")
@click.option("--only", default="", help="Only functions whose name has this text.")
def emulate(file: Path, every: int, only: str) -> None:
    """Compares the emulator's functions with a GPU's sums."""
    from difftest.report import jsonl

    wrong, wanted = 0, list(range(0, SHARES, every))
    for entry in jsonl.read("FILE", file, SCHEMA, "a GPU's sums")["sums"]:
        if only in entry["function"]:
            began, others = time.monotonic(), list(differing(entry, wanted))
            click.echo(
                f"{time.monotonic() - began:6.1f} s  {entry['function']}: {len(others)} of {len(wanted)} sums differ {others}"
            )
            wrong += len(others)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
