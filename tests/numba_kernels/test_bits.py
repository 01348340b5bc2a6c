"""The golden values: hashes of the output bits for every operator, dtype, contract and width, so that a change of any is seen.

The emulator and the GPU have the same: here they are computed on the emulator where there is no GPU, in test_gpu.py on one.

python tests/numba_kernels/test_bits.py        write the record anew (bits.jsonl): after a change that is meant to change bits
"""

import hashlib
import itertools
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import numba_kernels

RECORD = Path(__file__).with_name("bits.jsonl")
DTYPES = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
WIDTHS = (1, 3, 111, 128, 1024, 3584, 4096, 16384, 33333, 65536)
ROWS = (1, 5)
CONTRACTS = {
    "fused_add_rmsnorm": ("R0W0", "R1W0", "R0W1", "R1W1"),
    "gemma_fused_add_rmsnorm": ("R0W0", "R1W0", "R0W1", "R1W1"),
    "rmsnorm": ("W0", "W1"),
    "gemma_rmsnorm": ("W0", "W1"),
    "silu_and_mul": ("S0", "S1"),
    "gelu_and_mul": ("S0", "S1"),
    "gelu_tanh_and_mul": ("S0", "S1"),
    "swigluoai_and_mul": ("S0", "S1", "S2"),
}
GROUPS = [(op, dtype, code) for op, codes in CONTRACTS.items() for dtype, code in itertools.product(DTYPES, codes)]
QUICK = [("fused_add_rmsnorm", "bf16", "R1W1"), ("gelu_and_mul", "fp32", "S0")]  # the others are in the whole record


def drawn(seed, *shape):
    """Values in [-4, 4), exact functions of the bits that the generator promises to keep from version to version."""
    raw = np.random.PCG64(seed).random_raw(int(np.prod(shape)))
    return ((raw >> np.uint64(40)).astype(np.float64) * 2.0**-21 - 4.0).reshape(shape)


def hashed(op, dtype, code, width, rows):
    """The hash of what a call writes."""
    kind, call = DTYPES[dtype], getattr(numba_kernels, op)
    if op.endswith("_and_mul"):
        written = [call(drawn(width, rows, 2 * width).astype(kind), contract=code)]
    else:
        x, weight = drawn(width, rows, width).astype(kind), drawn(width + 1, width).astype(kind)
        if "add" in op:
            written = [x, drawn(width + 2, rows, width).astype(kind)]
            call(*written, weight, contract=code)
        else:
            written = [call(x, weight, contract=code)]
    return hashlib.sha256(b"".join(array.tobytes() for array in written)).hexdigest()[:16]


def group(op, dtype, code, widths=WIDTHS):
    return {f"{rows}x{width}": hashed(op, dtype, code, width, rows) for width in widths for rows in ROWS}


def recorded():
    lines = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    return {(each["op"], each["dtype"], each["contract"]): each["hashes"] for each in lines}


@pytest.fixture(scope="module")
def record():
    return recorded()


def test_the_record_holds_every_group(record):
    assert list(record) == GROUPS
    assert all(len(hashes) == len(WIDTHS) * len(ROWS) for hashes in record.values())


@pytest.mark.parametrize(("op", "dtype", "code"), QUICK)
def test_the_edge_widths_keep_their_bits(record, op, dtype, code):
    widths = (1, 3, 111, 4096)
    assert group(op, dtype, code, widths) == {
        key: value for key, value in record[op, dtype, code].items() if int(key.partition("x")[2]) in widths
    }


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype", "code"), GROUPS)
def test_every_width_keeps_its_bits(record, op, dtype, code):
    assert group(op, dtype, code) == record[op, dtype, code]


if __name__ == "__main__":
    written = [json.dumps({"op": o, "dtype": d, "contract": c, "hashes": group(o, d, c)}) for o, d, c in GROUPS]
    RECORD.write_text("\n".join(written) + "\n", encoding="utf-8")
