"""The kernels on the hardware. Marked ``gpu``."""

import threading
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import numba_kernels
from numba_kernels.runtime import launch
from reference.arithmetic import evaluate, evaluate_f64
from reference.contracts import contract

from .rows import ADD_NORMS, DTYPES, GATED, NORMS, bits, call, expected, inputs_of, random, steps_apart, to_torch
from .test_bits import GROUPS, group, recorded

pytestmark = pytest.mark.gpu
TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def cuda_inputs(op, rows, width, dtype, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, device="cuda", generator=generator).to(TORCH[dtype])

    if op in GATED:
        return [normal(rows, 2 * width)]
    return [normal(rows, width)] + ([normal(rows, width)] if op in ADD_NORMS else []) + [normal(width)]


def outputs(op, tensors, **options):
    """Run on clones; the outputs as a list, output first."""
    tensors = [t.clone() for t in tensors]
    function = getattr(numba_kernels, op)
    if op in ADD_NORMS:
        function(*tensors, **options)
        return tensors[:2]
    return [function(*tensors, **options)]


def apart(a, b):
    kind = torch.int32 if a.dtype == torch.float32 else torch.int16

    def line(t):
        word = t.view(kind).long()
        return torch.where(word < 0, -(word & (2**31 - 1 if kind == torch.int32 else 2**15 - 1)), word)

    return (line(a) - line(b)).abs()


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("R0W0", [0.9921875, 1.453125, -1.6484375, 0.75]),
        ("R1W0", [0.9921875, 1.453125, -1.6484375, 0.74609375]),
        ("R0W1", [0.9921875, 1.4453125, -1.65625, 0.74609375]),
        ("R1W1", [0.9921875, 1.4609375, -1.65625, 0.74609375]),
    ],
)
def test_one_row_tells_the_four_contracts_apart(code, output):
    x = torch.tensor([[-0.5625, -0.078125, -0.109375, -1]], dtype=torch.bfloat16, device="cuda")
    residual = torch.tensor([[4.25, 7.5, -6.5, 4]], dtype=torch.bfloat16, device="cuda")
    weight = torch.tensor([1.484375, 1.078125, 1.375, 1.375], dtype=torch.bfloat16, device="cuda")
    numba_kernels.fused_add_rmsnorm(x, residual, weight, contract=code)
    assert x.tolist() == [output]
    assert residual.tolist() == [[3.6875, 7.4375, -6.625, 3]]


@pytest.mark.parametrize(("code", "output"), [("R0W0", [0.6328125, 1.2646484375]), ("R1W0", [0.63232421875, 1.2646484375])])
def test_the_fp16_row_that_rounds_to_the_same_residual(code, output):
    x = torch.tensor([[1, 2]], dtype=torch.float16, device="cuda")
    residual = torch.tensor([[2**-11, 0]], dtype=torch.float16, device="cuda")
    numba_kernels.fused_add_rmsnorm(x, residual, torch.ones(2, dtype=torch.float16, device="cuda"), contract=code)
    assert x.tolist() == [output]
    assert residual.tolist() == [[1, 2]]


# On an H200 rows of 40001 are kept in 160 KB of shared memory, and rows of 100003 read twice.
@pytest.mark.parametrize(
    "width",
    [1, 3, 64, 111, 128, 1000, 1024, 3584, 4096, 4097, 7168, 8192, 10001, 16384, 32768, 40001, 65536, 100000, 100003, 262144],
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ADD_NORMS + NORMS)
def test_every_width_agrees_with_the_plain_arithmetic(op, width, dtype):
    for rows in (3, 600):
        if rows * width > 1 << 25:
            continue
        tensors = cuda_inputs(op, rows, width, dtype, seed=width)
        names = ("input", "residual", "weight") if op in ADD_NORMS else ("input", "weight")
        want = evaluate(op, dict(zip(names, tensors, strict=True)), contract(op))
        got = outputs(op, tensors)
        distance = apart(got[0], want["output"])
        assert distance.max() <= (8 if dtype == "fp32" else 1)
        if dtype != "fp32":
            assert torch.count_nonzero(distance) <= 1e-3 * distance.numel() + 1
        if op in ADD_NORMS:
            assert torch.equal(got[1], want["residual"])


@pytest.mark.parametrize("width", [1, 3, 64, 111, 4096, 14336])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", GATED)
@pytest.mark.parametrize("code", ["S0", "S1"])
def test_the_gated_forms_agree_with_the_plain_arithmetic(op, width, dtype, code):
    for rows in (2, 300):
        tensors = cuda_inputs(op, rows, width, dtype, seed=width)
        exact = evaluate_f64(op, {"input": tensors[0]}, contract(op, code))["output"]
        distance = apart(outputs(op, tensors, contract=code)[0], exact.to(TORCH[dtype]))
        # S1 rounds twice: one step of act(gate) may be two of the product.
        assert distance.max() <= {"fp32": 8}.get(dtype, 2 if code == "S1" else 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ADD_NORMS + NORMS + GATED)
def test_a_row_keeps_its_bits_in_any_batch(op, dtype):
    tensors = cuda_inputs(op, 4096, 4096, dtype)
    whole = outputs(op, tensors)
    rest = tensors[-1:] if op not in GATED else []
    per_row = tensors[: len(tensors) - len(rest)]
    for rows in (1, 255, 256):
        starts = range(0, 4096, rows) if rows > 1 else range(0, 4096, 37)
        for start in starts:
            part = outputs(op, [t[start : start + rows] for t in per_row] + rest)
            for got, want in zip(part, whole, strict=True):
                assert torch.equal(got, want[start : start + rows])


@pytest.mark.parametrize("width", [111, 1024, 3584, 4096, 16384, 40001, 65536, 100003, 131072, 262144])
def test_the_same_call_gives_the_same_bits_again(width):
    tensors = cuda_inputs("fused_add_rmsnorm", 64, width, "fp32")  # 16 bits would hide almost every other order of the sum
    want = outputs("fused_add_rmsnorm", tensors)
    for _ in range(50):
        for got, first in zip(outputs("fused_add_rmsnorm", tensors), want, strict=True):
            assert torch.equal(got, first)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])  # 16 bits hide almost every other order of a sum
@pytest.mark.parametrize("width", [4097, 10001, 20480, 32768, 65536, 100000, 131072, 262144])
def test_a_wide_row_keeps_its_bits_in_any_batch(width, dtype):
    """With 150 rows each cluster of blocks takes several, one after another."""
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 150, width, dtype, seed=width)
    whole = outputs("fused_add_rmsnorm", [x, residual, weight])
    for start, rows in ((0, 1), (1, 1), (2, 70), (72, 78)):
        part = outputs("fused_add_rmsnorm", [x[start : start + rows], residual[start : start + rows], weight])
        for got, want in zip(part, whole, strict=True):
            assert torch.equal(got, want[start : start + rows])


@pytest.mark.parametrize(("rows", "width"), [(2100, 32768), (2900, 24576), (1500, 65536)])
def test_many_rows_shared_out_to_clusters_have_the_bits_of_few(rows, width):
    """From 128 MiB of x on clusters share rows that one block could hold."""
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", rows, width, "bf16")
    whole = outputs("fused_add_rmsnorm", [x, residual, weight])
    for start in range(0, rows, 200):
        part = outputs("fused_add_rmsnorm", [x[start : start + 200], residual[start : start + 200], weight])
        for got, want in zip(part, whole, strict=True):
            assert torch.equal(got, want[start : start + 200])


def test_launches_on_several_streams_at_once_take_their_own_rows():
    """And so do captured graphs that are replayed while launches of the same kernel are at work."""
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 100, 65536, "bf16")
    want = outputs("fused_add_rmsnorm", [x, residual, weight])
    copies = [(x.clone(), residual.clone()) for _ in range(6)]
    captured, graphs = torch.cuda.Stream(), []
    for a, b in copies[:2]:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], stream=captured):
            numba_kernels.fused_add_rmsnorm(a, b, weight)
    streams = [torch.cuda.Stream() for _ in copies]
    for _ in range(20):
        for a, b in copies:
            a.copy_(x)
            b.copy_(residual)
        torch.cuda.synchronize()
        for stream, (a, b), graph in zip(streams, copies, [*graphs, *[None] * 4], strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(400_000)  # until the others are queued too
                if graph:
                    graph.replay()
                else:
                    numba_kernels.fused_add_rmsnorm(a, b, weight)
        torch.cuda.synchronize()
        for a, b in copies:
            assert torch.equal(a, want[0])
            assert torch.equal(b, want[1])


def test_where_no_cluster_of_16_fits_a_smaller_one_has_the_same_bits(monkeypatch):
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 20, 262144, "bf16")
    want = outputs("fused_add_rmsnorm", [x, residual, weight])
    asked, resident_grid = [], launch.resident_grid

    def small(device, function, spec, rows, shared):
        asked.append(spec.cluster)
        return (0, 1, 1) if spec.cluster > 8 else resident_grid(device, function, spec, rows, shared)

    monkeypatch.setattr(launch, "resident_grid", small)
    for got, first in zip(outputs("fused_add_rmsnorm", [x[:19], residual[:19], weight]), want, strict=True):
        assert torch.equal(got, first[:19])
    assert asked == [16, 8]


def test_without_a_counter_left_no_kernel_is_persistent_and_rows_keep_their_bits(monkeypatch):
    tensors = cuda_inputs("fused_add_rmsnorm", 100, 65536, "fp32")
    want = outputs("fused_add_rmsnorm", tensors)
    monkeypatch.setattr(launch, "counter_for", lambda stream: None)
    for got, first in zip(outputs("fused_add_rmsnorm", tensors), want, strict=True):
        assert torch.equal(got, first)


@pytest.mark.parametrize(("op", "dtype", "code"), GROUPS)
def test_the_hardware_has_the_bits_that_the_emulator_recorded(op, dtype, code, monkeypatch):
    monkeypatch.delenv("NUMBA_KERNELS_DEVICE", raising=False)
    assert group(op, dtype, code) == recorded()[op, dtype, code]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_misaligned_argument_keeps_the_bits(which, dtype):
    tensors = cuda_inputs("fused_add_rmsnorm", 1, 4096, dtype)
    want = outputs("fused_add_rmsnorm", tensors)
    moved = [t.clone() for t in tensors]
    buffer = torch.empty(moved[which].numel() + 1, dtype=TORCH[dtype], device="cuda")
    view = buffer[1:].view(moved[which].shape)
    view.copy_(moved[which])
    moved[which] = view
    numba_kernels.fused_add_rmsnorm(*moved)
    assert torch.equal(moved[0], want[0])
    assert torch.equal(moved[1], want[1])


def off_by_one(tensor):
    """A copy that starts one element into its buffer."""
    view = tensor.new_empty(tensor.numel() + 1)[1:].view(tensor.shape)
    view.copy_(tensor)
    return view


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", NORMS + GATED)
def test_a_misaligned_input_or_out_keeps_the_bits(op, dtype):
    function = getattr(numba_kernels, op)
    x, *weight = cuda_inputs(op, 3, 4096, dtype)
    want = function(x, *weight)
    assert torch.equal(function(off_by_one(x), *weight), want)
    assert torch.equal(function(x, *weight, out=off_by_one(torch.zeros_like(want))), want)
    if weight:
        assert torch.equal(function(x, off_by_one(weight[0])), want)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("op", ADD_NORMS + NORMS)
def test_an_fp32_weight_beside_16_bit_rows_is_read_as_fp32(op, dtype):
    tensors = cuda_inputs(op, 3, 4096, dtype)
    tensors[-1] = torch.randn(4096, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    names = ("input", "residual", "weight") if op in ADD_NORMS else ("input", "weight")
    want = evaluate(op, dict(zip(names, tensors, strict=True)), contract(op))["output"]
    distance = apart(outputs(op, tensors)[0], want)
    assert distance.max() <= 1
    assert torch.count_nonzero(distance) <= 1e-3 * distance.numel() + 1


@pytest.mark.parametrize("op", ADD_NORMS + NORMS + GATED)
def test_zero_rows_launch_nothing_and_the_next_call_works(op):
    for _ in range(2):
        empty = outputs(op, cuda_inputs(op, 0, 64, "bf16"))
        assert all(t.shape == (0, 64) for t in empty)
        torch.cuda.synchronize()
        assert outputs(op, cuda_inputs(op, 2, 64, "bf16"))[0].isfinite().all()


def test_one_row_is_called_without_a_warning():
    """numba's own launch warns of a grid below the GPU's size."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op in ADD_NORMS + NORMS + GATED:
            outputs(op, cuda_inputs(op, 1, 4096, "bf16"))


def test_numpy_arrays_are_staged_through_the_gpu_in_place():
    inputs = inputs_of("fused_add_rmsnorm", 5, 111, "bf16")
    got, want = call("fused_add_rmsnorm", inputs), expected("fused_add_rmsnorm", inputs)
    assert np.array_equal(bits(got["residual"]), bits(want["residual"]))
    assert steps_apart(got["output"], want["output"]).max() <= 1
    wide = random((4, 100), "bf16")
    kept = wide.copy()
    numba_kernels.rmsnorm(wide[:, :64], np.ones(64, ml_dtypes.bfloat16), out=wide[:, :64])
    assert np.array_equal(bits(wide[:, 64:]), bits(kept[:, 64:]))
    assert not np.array_equal(bits(wide[:, :64]), bits(kept[:, :64]))


def test_a_weight_on_the_cpu_is_named():
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 2, 64, "bf16")
    with pytest.raises(ValueError, match="weight: on the CPU while input is on cuda:0"):
        numba_kernels.fused_add_rmsnorm(x, residual, weight.cpu())


def test_the_second_call_with_overlapping_tensors_is_refused_too():
    buffer = torch.randn(8, 64, device="cuda")
    weight = torch.ones(64, device="cuda")
    numba_kernels.fused_add_rmsnorm(buffer[:4], buffer[4:], weight)
    with pytest.raises(ValueError, match="overlaps"):
        numba_kernels.fused_add_rmsnorm(buffer[:4], buffer[3:7], weight)


def test_the_second_call_with_an_out_that_overlaps_is_refused_too():
    buffer, weight = torch.randn(8, 64, device="cuda"), torch.ones(64, device="cuda")
    numba_kernels.rmsnorm(buffer[:4], weight, out=buffer[4:])
    numba_kernels.rmsnorm(buffer[:4], weight, out=buffer[:4])
    with pytest.raises(ValueError, match="out: overlaps input"):
        numba_kernels.rmsnorm(buffer[:4], weight, out=buffer[3:7])
    memory = torch.randn(8 * 96, device="cuda")
    x, out = memory[: 4 * 128].view(4, 128), memory[4 * 128 : 4 * 192].view(4, 64)
    numba_kernels.silu_and_mul(x, out)
    with pytest.raises(ValueError, match="out: overlaps input"):
        numba_kernels.silu_and_mul(x, memory[4 * 127 : 4 * 191].view(4, 64))


def test_cuda_array_interface_arrays_run_on_their_stream():
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((4, 64)).astype(cupy.float32)
    out = numba_kernels.rmsnorm(x, cupy.ones(64, cupy.float32))
    assert isinstance(out, cupy.ndarray)
    host = x.get()
    assert np.allclose(out.get(), host / np.sqrt((host**2).mean(-1, keepdims=True) + 1e-6), rtol=1e-5)


def test_a_call_runs_on_the_callers_current_stream():
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 64, 4096, "bf16")
    want = outputs("fused_add_rmsnorm", [x + 1, residual, weight])
    side = torch.cuda.Stream()
    for _ in range(20):
        a, b = x.clone(), residual.clone()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)  # a kernel on another stream would run before the producer below
            a += 1
            numba_kernels.fused_add_rmsnorm(a, b, weight)
        side.synchronize()
        assert torch.equal(a, want[0])
        assert torch.equal(b, want[1])


def test_a_graph_of_64_chained_calls_replays_with_changed_input():
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 16, 4096, "bf16")
    numba_kernels.fused_add_rmsnorm(x.clone(), residual.clone(), weight)
    static_x, static_residual = x.clone(), residual.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(64):
            numba_kernels.fused_add_rmsnorm(static_x, static_residual, weight)
    for seed in (1, 2):
        new_x, new_residual, _ = cuda_inputs("fused_add_rmsnorm", 16, 4096, "bf16", seed=seed)
        static_x.copy_(new_x)
        static_residual.copy_(new_residual)
        graph.replay()
        for _ in range(64):
            numba_kernels.fused_add_rmsnorm(new_x, new_residual, weight)
        assert torch.equal(static_x, new_x)
        assert torch.equal(static_residual, new_residual)


def test_dependent_launches_never_read_too_early():
    """Chains in which every kernel reads what the one before wrote, with and without programmatic dependent launch."""
    for rows, width in ((1, 4096), (600, 4096), (16, 16384), (200, 128), (4, 65536)):
        x, residual, weight = cuda_inputs("fused_add_rmsnorm", rows, width, "bf16")
        chains = []
        for pdl in (True, False):
            a, b = x.clone(), residual.clone()
            for _ in range(200):
                numba_kernels.fused_add_rmsnorm(a, b, weight, enable_pdl=pdl)
                c = numba_kernels.silu_and_mul(torch.cat([a, b], -1), enable_pdl=pdl)
                a = numba_kernels.rmsnorm(c, weight, enable_pdl=pdl)
            chains.append((a, b))
        assert torch.equal(chains[0][0], chains[1][0])
        assert torch.equal(chains[0][1], chains[1][1])


def test_inference_mode_and_other_threads():
    tensors = cuda_inputs("fused_add_rmsnorm", 8, 4096, "bf16")
    want = outputs("fused_add_rmsnorm", tensors)
    with torch.inference_mode():
        got = outputs("fused_add_rmsnorm", tensors)
    assert torch.equal(got[0], want[0])
    failures = []

    def work():
        try:
            for _ in range(100):
                mine = outputs("fused_add_rmsnorm", tensors)
                assert torch.equal(mine[0], want[0])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_fresh_thread_without_a_context_can_call():
    tensors = cuda_inputs("rmsnorm", 8, 4096, "bf16")
    numba_kernels.rmsnorm(*tensors)
    out = torch.empty_like(tensors[0])
    torch.cuda.synchronize()
    failures = []

    def work():
        try:
            numba_kernels.rmsnorm(*tensors, out=out)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failures
    assert torch.equal(out, numba_kernels.rmsnorm(*tensors))


def test_torch_compile_keeps_the_operators_and_the_bits():
    from .test_torch_ops import block

    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 16, 4096, "bf16")
    eager_x, eager_residual = x.clone(), residual.clone()
    want = block(eager_x, eager_residual, weight)
    got = torch.compile(block, fullgraph=True)(x, residual, weight)
    assert torch.equal(got, want)
    assert torch.equal(x, eager_x)
    assert torch.equal(residual, eager_residual)


@pytest.mark.parametrize("name", ["fused_add_rmsnorm", "add_rmsnorm", "rmsnorm", "silu_and_mul"])
def test_opcheck_passes_on_cuda(name):
    op = "fused_add_rmsnorm" if "add" in name else name
    tensors = cuda_inputs(op, 3, 64, "bf16")
    torch.library.opcheck(getattr(torch.ops.numba_kernels, name).default, tuple(tensors))


@pytest.mark.slow
def test_half_a_million_rows_have_64_bit_offsets():
    rows, width = 524_289, 4096  # 2^31 elements and one row
    x = torch.zeros(rows, width, dtype=torch.bfloat16, device="cuda")
    x[0], x[-1] = 1, 3
    weight = torch.ones(width, dtype=torch.bfloat16, device="cuda")
    numba_kernels.rmsnorm(x, weight, out=x)
    assert (x[0] == 1).all()
    assert (x[-1] == 1).all()
    assert (x[1:-1:4096] == 0).all()


@pytest.mark.slow
def test_gated_rows_beyond_2_to_the_31_elements_have_64_bit_offsets():
    rows, width = 175_000, 12_288
    x = torch.zeros(rows, 2 * width, dtype=torch.bfloat16, device="cuda")
    x[0], x[-1] = 1, 2
    out = numba_kernels.silu_and_mul(x)
    assert torch.equal(out[0], numba_kernels.silu_and_mul(x[:1].clone())[0])
    assert torch.equal(out[-1], numba_kernels.silu_and_mul(x[-1:].clone())[0])
    assert out[0, 0] != out[-1, 0] != 0
    assert not out[1:-1:997].any()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_tensor_on_another_device_than_the_current_one():
    first, second = cuda_inputs("rmsnorm", 8, 4096, "bf16"), None
    second = [t.to("cuda:1") for t in first]
    want = numba_kernels.rmsnorm(*first)
    for _ in range(3):
        got = numba_kernels.rmsnorm(*second)
        assert torch.cuda.current_device() == 0
        assert got.device == torch.device("cuda:1")
        assert torch.equal(got.cpu(), want.cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("width", [4096, 65536])
def test_two_threads_launch_on_two_devices_at_once(width):
    """Each thread on the other one's current device too, so that contexts are changed while the other launches."""
    tensors = cuda_inputs("fused_add_rmsnorm", 16, width, "bf16")
    want = [t.cpu() for t in outputs("fused_add_rmsnorm", tensors)]
    on_each = [[t.to(f"cuda:{device}") for t in tensors] for device in (0, 1)]
    ready, failures = threading.Barrier(2), []

    def work(mine, current):
        try:
            torch.cuda.set_device(current)
            ready.wait()
            for _ in range(100):
                got = outputs("fused_add_rmsnorm", mine)
                assert torch.cuda.current_device() == current
                assert all(g.device == mine[0].device and torch.equal(g.cpu(), w) for g, w in zip(got, want, strict=True))
        except BaseException as error:
            failures.append(error)

    for swapped in (0, 1):
        threads = [threading.Thread(target=work, args=(on_each[k], k ^ swapped)) for k in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_arrays_of_torch_and_numpy_agree():
    inputs = inputs_of("silu_and_mul", 3, 64, "fp16")
    on_gpu = numba_kernels.silu_and_mul(to_torch(inputs["input"]).cuda())
    staged = numba_kernels.silu_and_mul(inputs["input"])
    assert np.array_equal(on_gpu.cpu().numpy(), staged)


def test_a_remembered_call_is_seen_by_the_dispatcher():
    tensors = cuda_inputs("rmsnorm", 8, 4096, "bf16")
    want = outputs("rmsnorm", tensors)[0]
    graph = make_fx(lambda x: numba_kernels.rmsnorm(x, tensors[1]))(tensors[0].clone())
    assert torch.ops.numba_kernels.rmsnorm.default in [node.target for node in graph.graph.nodes]
    assert torch.equal(graph(tensors[0].clone()), want)


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "rmsnorm", "silu_and_mul"])
def test_a_remembered_call_tells_autograd_what_it_wrote(op):
    tensors = cuda_inputs(op, 8, 4096, "bf16")
    out = {} if op in ADD_NORMS else {"out": torch.empty(8, 4096, dtype=torch.bfloat16, device="cuda")}
    written = tensors[:2] if op in ADD_NORMS else [out["out"]]
    for _ in range(3):
        before = [t._version for t in written]
        getattr(numba_kernels, op)(*tensors, **out)
        assert all(t._version > version for t, version in zip(written, before, strict=True))
    written[-1].requires_grad_()
    kept = [t.detach().clone() for t in written]
    with pytest.raises(ValueError, match="requires grad"):
        getattr(numba_kernels, op)(*tensors, **out)
    assert all(torch.equal(t.detach(), k) for t, k in zip(written, kept, strict=True))
    with torch.no_grad():
        getattr(numba_kernels, op)(*tensors, **out)


def test_a_remembered_call_with_memory_that_was_freed():
    x, residual, weight = cuda_inputs("fused_add_rmsnorm", 8, 4096, "bf16")
    for _ in range(2):
        numba_kernels.fused_add_rmsnorm(x, residual, weight)
    x.untyped_storage().resize_(0)
    kept = residual.clone()
    with pytest.raises(TypeError, match="input: a Tensor without memory of its own"):
        numba_kernels.fused_add_rmsnorm(x, residual, weight)
    assert torch.equal(residual, kept)
