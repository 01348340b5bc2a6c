"""The textbook kernels, run as operators: on the emulator, and (marked ``gpu``) on the hardware."""

from itertools import product

import numpy as np
import pytest
import torch

import numba_kernels
from difftest.verdict import judge
from numba_kernels import textbook, tuning
from numba_kernels.backend.compile import assemble, compile_to_ptx, kernel_function
from numba_kernels.emulator import EmulatedKernel
from numba_kernels.kernels.config import GatedOperation, Kernel, NormOperation, TextbookConfig, TextbookGatedConfig
from numba_kernels.plans import GatedPlan, NormPlan
from numba_kernels.runtime import launch
from reference.contracts import contract
from reference.operators import OPERATORS

from .rows import ADD_NORMS, DTYPES, bits, slow

TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WIDTHS = (1, 3, 111, 4096)
EVERY = [(op, code, dtype) for op in OPERATORS for code in OPERATORS[op].codes for dtype in DTYPES]
# Every rounding, every operator and every dtype; what is left differs from these in one of the three alone.
FIRST = {
    ("fused_add_rmsnorm", "R1W0", "bf16"),
    ("gemma_fused_add_rmsnorm", "R0W1", "bf16"),
    ("fused_add_rmsnorm", "R1W1", "fp16"),
    ("rmsnorm", "W0", "fp32"),
    ("gemma_rmsnorm", "W1", "bf16"),
    ("silu_and_mul", "S0", "fp32"),
    ("gelu_and_mul", "S1", "fp16"),
    ("gelu_tanh_and_mul", "S0", "bf16"),
    ("swigluoai_and_mul", "S2", "bf16"),
}


def inputs_of(op, rows, width, dtype, seed=0, device="cpu", weight_dtype=None):
    """Tensors by name. The last row holds an Inf, the one before it a NaN, where there are three or more."""
    generator = torch.Generator().manual_seed(seed)

    def values(*shape, dtype=dtype):
        return torch.randn(*shape, generator=generator).to(TORCH[dtype])

    declared = OPERATORS[op]
    found = {name: values(*shape) for name, shape in declared.shapes((rows,), width).items()}
    for name in declared.vectors:
        found[name] = found[name] if weight_dtype is None else values(width, dtype=weight_dtype)
    if rows > 2:
        x = found["input"]
        x[-1, width // 2], x[-2, width // 3] = torch.inf, torch.nan
    return {name: tensor.to(device) for name, tensor in found.items()}


def run(op, inputs, code, **options):
    """The outputs of the textbook kernel by name; the inputs are left alone."""
    copies = {name: tensor.clone() for name, tensor in inputs.items()}
    returned = getattr(textbook, op)(*copies.values(), contract=code, **options)
    return {"output": copies["input"], "residual": copies["residual"]} if op in ADD_NORMS else {"output": returned}


def verdict(op, inputs, code, **options):
    found = run(op, inputs, code, **options)
    on_cpu = [{name: tensor.cpu() for name, tensor in tensors.items()} for tensors in (inputs, found)]
    return judge(op, *on_cpu, contract(op, code))


@pytest.mark.parametrize(
    ("op", "code", "dtype"), [pytest.param(*case, marks=() if case in FIRST else pytest.mark.slow) for case in EVERY]
)
def test_the_textbook_kernel_conforms_on_the_emulator(op, code, dtype):
    for width in WIDTHS:
        got = verdict(op, inputs_of(op, 4, width, dtype, seed=width), code)
        assert got.conforms, (width, got.reasons)


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "code", "dtype"), EVERY)
def test_the_textbook_kernel_conforms_on_the_gpu(op, code, dtype):
    for rows, width in [*product((4,), WIDTHS), (300, 1000), (2, 40001)]:
        got = verdict(op, inputs_of(op, rows, width, dtype, seed=width, device="cuda"), code)
        assert got.conforms, (rows, width, got.reasons)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_a_weight_in_fp32_stands_beside_16_bit_rows(dtype):
    inputs = inputs_of("fused_add_rmsnorm", 3, 111, dtype, weight_dtype="fp32")
    assert inputs["weight"].dtype == torch.float32
    assert verdict("fused_add_rmsnorm", inputs, "R0W0").conforms


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "silu_and_mul"])
def test_any_stride_and_alignment_gives_the_same_bits_and_writes_nothing_else(op):
    code = "R0W0" if op in ADD_NORMS else "S1"
    inputs = inputs_of(op, 3, 111, "bf16")
    want = run(op, inputs, code)
    apart, memory = {}, {}
    for name, tensor in inputs.items():
        memory[name] = torch.full((tensor.numel() + 7 * 3 + 9,), 7.0, dtype=tensor.dtype)
        shape, strides = tensor.shape, (tensor.shape[-1] + 7, 1)[-tensor.ndim :]
        apart[name] = memory[name].as_strided(shape, strides, 1).copy_(tensor)
    before = {name: flat.clone() for name, flat in memory.items()}
    returned = getattr(textbook, op)(*apart.values(), contract=code)
    got = {"output": apart["input"], "residual": apart["residual"]} if op in ADD_NORMS else {"output": returned}
    for name, tensor in got.items():
        assert torch.equal(tensor.contiguous().view(torch.int16), want[name].view(torch.int16))
    written = {"input", "residual"} if op in ADD_NORMS else set()
    for name, flat in memory.items():
        if name in written:
            apart[name].copy_(inputs[name])
        assert torch.equal(flat.view(torch.int16), before[name].view(torch.int16))


def test_the_output_lands_in_out_which_may_be_the_input():
    inputs = inputs_of("rmsnorm", 2, 111, "fp32")
    want = run("rmsnorm", inputs, "W0")["output"]
    out = torch.empty_like(want)
    assert textbook.rmsnorm(inputs["input"], inputs["weight"], 1e-6, out) is out
    assert torch.equal(out, want)
    assert textbook.rmsnorm(inputs["input"], inputs["weight"], out=inputs["input"]) is inputs["input"]
    assert torch.equal(inputs["input"], want)


@pytest.mark.parametrize("module", [textbook, numba_kernels], ids=["textbook", "fast"])
def test_a_weight_of_either_zero_keeps_its_sign(module):
    weight = np.array([0.0, -0.0, 1.0], np.float32)
    out = module.rmsnorm(np.ones((1, 3), np.float32), weight)
    assert np.signbit(out).tolist() == [[False, True, False]]


def test_a_row_keeps_its_bits_in_any_batch():
    inputs = inputs_of("rmsnorm", 5, 1000, "fp32")
    whole = run("rmsnorm", inputs, "W0")["output"]
    for row in range(5):
        alone = run("rmsnorm", {**inputs, "input": inputs["input"][row : row + 1]}, "W0")["output"]
        assert torch.equal(alone.view(torch.int32), whole[row : row + 1].view(torch.int32))


def test_a_row_that_does_not_fit_shared_memory_is_refused_before_anything_is_written():
    widest = textbook.widest("fused_add_rmsnorm")
    x, residual = torch.ones(1, widest + 1), torch.ones(1, widest + 1)
    with pytest.raises(ValueError, match=f"^input: rows of {widest + 1} elements; .* and {widest} fit here"):
        textbook.fused_add_rmsnorm(x, residual, torch.ones(widest + 1))
    assert torch.all(x == 1)
    assert torch.all(residual == 1)
    fits = torch.ones(1, widest)
    textbook.rmsnorm(fits, torch.ones(widest), out=fits)
    assert torch.allclose(fits, torch.ones(()))


def test_a_gated_row_may_be_of_any_width():
    width = textbook.widest("rmsnorm") + 1
    assert textbook.widest("silu_and_mul") is None
    x = torch.ones(1, 2 * width)
    assert textbook.silu_and_mul(x).unique().numel() == 1


def kernel(dtype, weight=None, threads=256):
    return Kernel(NormOperation(True, dtype, weight or dtype, True, True, None), TextbookConfig(threads))


@pytest.mark.parametrize("seed", [None, 1])
def test_no_thread_depends_on_another_without_a_barrier_between(seed):
    """The race detector follows the shared memory; a drawn schedule runs the warps in another order."""
    inputs = {name: tensor.numpy().reshape(-1) for name, tensor in inputs_of("fused_add_rmsnorm", 2, 333, "fp32").items()}
    run_on_emulator = EmulatedKernel(kernel_function(kernel("fp32", threads=96)), check="full", accepted=True)
    buffers = [bits(array.copy()) for array in inputs.values()]
    eps, bias = (int(np.float32(value).view(np.uint32)) for value in (1e-6, 0.0))
    scalars = (333, 333, 333, 2, 333, 0, eps, bias, 0)
    run_on_emulator.launch(2, 96, (*buffers, buffers[0], *scalars), dynamic_shared_bytes=4 * 333, schedule_seed=seed)
    want = inputs["input"] + inputs["residual"]
    assert np.array_equal(buffers[1].view(np.float32), want)
    rows = want.reshape(2, 333).astype(np.float64)
    scaled = rows / np.sqrt(np.mean(rows**2, axis=1, keepdims=True) + 1e-6) * inputs["weight"]
    assert np.allclose(buffers[0].view(np.float32).reshape(2, 333), scaled, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "made", [kernel("fp16", "fp32"), *slow(kernel("bf16"), kernel("fp32"))], ids=lambda made: made.operation.storage
)
def test_the_textbook_norm_has_no_fp64_and_no_local_memory(made):
    ptx = compile_to_ptx(made, (9, 0))
    assert ".f64" not in ptx
    assert ".local" not in ptx
    assert "shfl.sync.bfly" in ptx
    assert "bar.sync" in ptx
    assert assemble(ptx, (9, 0))[0][:4] == b"\x7fELF"


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_the_textbook_activation_has_no_fp64_and_no_local_memory(activation):
    ptx = compile_to_ptx(Kernel(GatedOperation(activation, "bf16", "S1"), TextbookGatedConfig(128)), (9, 0))
    assert ".f64" not in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize(
    ("plan", "grid", "shared"),
    [
        (NormPlan(kernel("bf16").operation, 7, 1000, 1000, 1000, 1000, 0, TextbookConfig()), (7, 1, 1), 4000),
        (GatedPlan(GatedOperation("silu", "bf16"), 7, 1000, 2000, 1000, (), TextbookGatedConfig()), (7, 4, 1), 0),
        (GatedPlan(GatedOperation("silu", "bf16"), 1, 2**30, 2**31, 2**30, (), TextbookGatedConfig()), (1, 65535, 1), 0),
    ],
)
def test_a_launch_has_a_block_a_row_and_shared_memory_for_it(plan, grid, shared, monkeypatch):
    """Without a GPU: what the way to the driver makes of a textbook plan."""
    asked = {}
    target = tuning.Target("sm_90", 227 * 1024, 132, clusters=16, pdl=True, bulk_prefetch=True)
    monkeypatch.setattr(launch, "load", lambda device, kernel: asked.update(kernel=kernel) or 5)
    monkeypatch.setattr(launch, "target", lambda device: target)
    monkeypatch.setattr(launch, "device_count", lambda: 1)
    monkeypatch.setattr(launch.packing, "driver_entry", lambda: 0)
    monkeypatch.setattr(launch.packing, "launch_config", lambda *given, **options: asked.update(given=given, **options))
    monkeypatch.setattr(launch.packing, "pack_arguments", lambda *given: asked.update(packed=given[1]) or np.zeros(1, np.int64))
    launch.Prepared(plan, 0, True)._build((0,) * 4, target)
    assert asked["kernel"].config == plan.config
    assert asked["given"] == (grid, 256, shared)
    assert (asked["pdl"], asked["cluster"], asked["packed"]) == (False, 1, 5)


@pytest.mark.gpu
def test_a_row_may_lie_beyond_2_to_the_31_elements():
    stride = 2**31 + 8
    memory = torch.empty(stride + 111, dtype=torch.bfloat16, device="cuda")
    inputs = inputs_of("fused_add_rmsnorm", 2, 111, "bf16", device="cuda")
    want = run("fused_add_rmsnorm", inputs, "R0W0")
    x = memory.as_strided((2, 111), (stride, 1)).copy_(inputs["input"])
    residual = inputs["residual"].clone()
    textbook.fused_add_rmsnorm(x, residual, inputs["weight"])
    assert torch.equal(x, want["output"])
    assert torch.equal(residual, want["residual"])


@pytest.mark.gpu
def test_more_columns_than_a_grid_has_blocks_for_are_taken_in_turns():
    width = 65535 * 256 + 300
    x = torch.randn(1, 2 * width, device="cuda").to(torch.bfloat16)
    assert judge("silu_and_mul", {"input": x}, {"output": textbook.silu_and_mul(x)}, contract("silu_and_mul")).conforms
