"""Every form of the kernels once, in few rows that end where their memory does: what benchmarks/sanitize.sh runs on a GPU."""

import pytest
import torch

import numba_kernels
from numba_kernels import textbook, tuning
from numba_kernels.kernels.config import GatedOperation, NormOperation
from numba_kernels.kernels.tree import row_tree
from reference.arithmetic import evaluate
from reference.contracts import contract
from reference.formats import FORMATS, bits
from reference.operators import OPERATORS

H200 = tuning.Target("sm_90", shared_bytes=227 * 1024, processors=132, clusters=16, pdl=True, bulk_prefetch=True)
# Operator, contract, dtype of rows and weight, rows x width: short rows in parts of a warp, a warp and two in one block; blocks;
# rows ahead that are prefetched; clusters, with a row each and with row after row; rows in shared memory, and read twice.
CALLS = [
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 3, 1),
    ("fused_add_rmsnorm", "R1W1", "bf16", "fp32", 5, 7),
    ("gemma_fused_add_rmsnorm", "R0W0", "bf16", "bf16", 300, 64),
    ("fused_add_rmsnorm", "R0W0", "fp16", "fp16", 300, 256),
    ("rmsnorm", "W0", "bf16", "bf16", 5, 111),
    ("gemma_rmsnorm", "W1", "bf16", "bf16", 5, 512),
    ("fused_add_rmsnorm", "R0W0", "fp32", "fp32", 3, 1000),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 3, 4096),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 600, 4096),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 2100, 4096),
    ("rmsnorm", "W0", "bf16", "bf16", 3, 4097),
    ("fused_add_rmsnorm", "R0W0", "fp16", "fp16", 3, 10001),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 4, 65536),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 40, 65536),
    ("rmsnorm", "W0", "bf16", "fp32", 150, 65536),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 3, 40001),
    ("fused_add_rmsnorm", "R0W0", "bf16", "bf16", 3, 100003),
    ("silu_and_mul", "S0", "bf16", "", 3, 111),
    ("gelu_and_mul", "S1", "fp16", "", 3, 128),
    ("gelu_tanh_and_mul", "S0", "fp32", "", 3, 4096),
    ("silu_and_mul", "S0", "bf16", "", 600, 64),
    ("silu_and_mul", "S0", "bf16", "", 30, 14336),
    ("swigluoai_and_mul", "S2", "bf16", "", 5, 1000),
]
TEXTBOOK = [
    ("fused_add_rmsnorm", "R1W1", "bf16", "fp32", 3, 1111),
    ("rmsnorm", "W0", "fp32", "fp32", 3, 4096),
    ("silu_and_mul", "S1", "bf16", "", 3, 1111),
    ("swigluoai_and_mul", "S0", "fp16", "", 3, 64),
]


def config(op, code, dtype, weight, rows, width):
    """How the call's kernel is configured on an H200: aligned, contiguous rows."""
    itemsize = FORMATS[dtype].itemsize
    access = tuning.access_bytes(row_tree(width, itemsize).vector, itemsize, width * itemsize)
    if not weight:
        return tuning.gated_config(GatedOperation("silu", dtype), width, rows, H200, access=access, pdl=True)
    operation = NormOperation("residual" in OPERATORS[op].inputs, dtype, weight, False, False, 0.0)
    return tuning.norm_config(operation, width, rows, H200, access=access, weight_access=access, pdl=True)


def test_the_calls_have_every_form_that_tuning_chooses():
    norms = [config(*call) for call in CALLS if call[3]]
    gated = [config(*call) for call in CALLS if not call[3]]
    assert {c.row_in for c in norms} == {"registers", "shared", "memory"}
    assert {(c.cluster > 1, c.persistent) for c in norms} == {(False, False), (True, False), (True, True)}
    short = [c for c in norms if c.threads_per_row <= 32]
    assert {c.lanes for c in short} >= {1, 8, 32}
    assert {c.rows_per_block > 1 for c in short} == {True, False}
    for kind in (norms, short, gated):
        assert {c.exact for c in kind} == {True, False}
        assert {c.vector for c in kind} >= {1, 8}
    assert {c.early_weights for c in norms if c.row_in == "registers" and c.warps > 1} >= {0, 1, 4}
    assert {c.prefetch_first for c in norms} == {True, False}
    assert any(c.prefetch_ahead for c in norms)
    assert {c.release for c in norms} == {"start", "loaded", "rows"}
    assert {c.vectors_per_lane > 1 for c in norms} == {True, False}
    assert {c.rows > 1 for c in gated} == {True, False}


def agrees(module, op, code, dtype, weight, rows, width):
    """Calls the operator on the GPU, each buffer in memory of its own, and holds it against the plain arithmetic on the host."""
    declared, generator = OPERATORS[op], torch.Generator().manual_seed(width)
    inputs = {
        name: torch.randn(shape, generator=generator).to(FORMATS[(weight if name in declared.vectors else "") or dtype].torch)
        for name, shape in declared.shapes((rows,), width).items()
    }
    expected = evaluate(op, inputs, contract(op, code))
    there = {name: values.cuda() for name, values in inputs.items()}  # copies: no kernel but the operator's runs on the GPU
    returned = getattr(module, op)(*there.values(), contract=code)
    found = {"output": there["input"], "residual": there["residual"]} if returned is None else {"output": returned}
    line = {name: ordered(values.cpu()) for name, values in found.items()}
    for name, values in line.items():
        most = 0 if name == "residual" else {"fp32": 16}.get(dtype, 2 if code[-1] != "0" else 1)
        assert (values - ordered(expected[name])).abs().max() <= most, name


def ordered(values):
    """Values by their place on the ordered line of their format."""
    words = bits(values).long()
    half = 1 << 8 * values.element_size() - 1
    return torch.where(words < 0, -(words + half), words)


@pytest.mark.gpu
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_form_keeps_to_its_memory(call):
    agrees(numba_kernels, *call)


@pytest.mark.gpu
@pytest.mark.parametrize("call", TEXTBOOK, ids=str)
def test_a_textbook_kernel_keeps_to_its_memory(call):
    agrees(textbook, *call)
