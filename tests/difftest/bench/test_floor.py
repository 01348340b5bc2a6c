"""What a call can't go below: the bare kernels run on the emulator, in the place of ours, and are compiled for sm_90."""

import ctypes
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from difftest.bench import floor, kernels, launch
from difftest.bench.buffers import BufferSets
from difftest.bench.choices import addresses, choice, plan_of
from difftest.bench.shapes import timed
from difftest.pages.forms import H200
from numba_kernels.backend.compile import assemble
from numba_kernels.emulator import EmulatedKernel
from reference.formats import FORMATS
from tests.difftest.bench.made_up import FakeProvider, FakeTimer

CPU = torch.device("cpu")
WORDS = {"bf16": np.uint16, "fp16": np.uint16, "fp32": np.uint32}


def buffer(address, elements, dtype):
    """The memory from an address on, as the words of a kernel's buffer."""
    kind = np.ctypeslib.as_ctypes_type(WORDS[dtype])
    return np.ctypeslib.as_array((kind * elements).from_address(address))


def buffers_of(case, addresses):
    """The buffers of one call, at the addresses that a kernel gets."""
    rows = case.rows * case.width
    sizes = (2 * rows, rows) if case.operator.activation else (rows, rows, case.width, rows)
    return [buffer(address, size, case.dtype) for address, size in zip(addresses, sizes, strict=True)]


def moving(case):
    """`launch.launcher_of` for one case, with what the moving kernel does done by NumPy."""

    def launcher_of(make, *_):
        def run(*addresses):
            x, *others = buffers_of(case, addresses)
            if make is kernels.make_empty:
                return
            if case.operator.activation:
                gate, up = np.split(x.reshape(case.rows, -1), 2, axis=1)
                others[-1][:] = (gate ^ up).reshape(-1)
                return
            residual, weight, out = others
            before = x.copy()
            out[:] = ((residual if case.operator.mutated else x).reshape(case.rows, -1) ^ weight).reshape(-1)
            if case.operator.mutated:
                residual[:] = before

        return run

    return launcher_of


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "rmsnorm", "silu_and_mul"])
def test_a_small_call_is_held_beside_an_empty_kernel_and_one_that_moves_its_bytes(op, monkeypatch):
    case = timed(op, "bf16", 3, 96, "cpu")
    monkeypatch.setattr(launch, "launcher_of", moving(case))
    found = floor.point(case, FakeProvider("numba"), H200, FakeTimer(), CPU)
    rows = [(row["kernel"], row["status"]) for row in found["results"]]
    assert rows == [("numba", "ok"), ("empty kernel", "ok"), ("loads and stores", "ok")]
    assert found["copy"] is None
    json.dumps(found)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


# A block a row, some of whose vectors lie past its end; a row's halves; rows by a warp each, with lanes left over; several
# vectors a thread.
FORMS = [
    ("fused_add_rmsnorm", "bf16", 2, 1400),
    ("silu_and_mul", "fp16", 3, 96),
    slow("rmsnorm", "bf16", 5, 111),
    slow("rmsnorm", "fp32", 600, 2048),
]


@pytest.mark.parametrize(("op", "dtype", "rows", "width"), FORMS)
def test_the_moving_kernel_moves_every_byte_and_computes_nothing(op, dtype, rows, width):
    case = timed(op, dtype, rows, width, "cpu")
    plan, kernel = plan_of(case), choice(case, H200)
    sets = BufferSets(case, 1, CPU)
    sets.refresh()
    held = {**sets.tensors(0), "output": torch.zeros(rows, width, dtype=FORMATS[dtype].torch)}
    output = held["input"] if case.operator.mutated else held["output"]
    arrays = buffers_of(case, addresses(case, sets.tensors(0), output))
    EmulatedKernel(kernels.make_move(kernel), accepted=True).launch(
        plan.shape(kernel)[0], kernel.config.threads, [*arrays, *plan.arguments(())]
    )
    for name, bits in floor.moved(case, sets.first_values()).items():
        assert torch.equal(floor._bits(held[name]).reshape(-1), bits.reshape(-1)), name


def test_a_kernel_that_leaves_bytes_where_they_were_is_wrong(monkeypatch):
    case = timed("rmsnorm", "bf16", 2, 64, "cpu")
    monkeypatch.setattr(launch, "launcher_of", lambda *_: lambda *addresses: ctypes.memset(addresses[-1], 0, 8))
    [_, empty, moved] = floor.point(case, FakeProvider("numba"), H200, FakeTimer(), CPU)["results"]
    assert empty["status"] == "ok"
    assert moved["status"] == "wrong"
    assert re.fullmatch(r"call 0: \d+ elements of output are not what was moved there", moved["reason"])


def test_a_kernel_that_can_not_be_launched_is_left_out_with_its_reason(monkeypatch):
    def refuse(*_):
        raise RuntimeError("the CUDA driver refused")

    monkeypatch.setattr(launch, "launcher_of", refuse)
    found = floor.point(timed("rmsnorm", "bf16", 2, 64, "cpu"), FakeProvider("numba"), H200, FakeTimer(), CPU)
    assert [row["status"] for row in found["results"]] == ["ok", "skipped", "skipped"]
    assert found["results"][1]["reason"] == "RuntimeError: the CUDA driver refused"


def test_the_bytes_of_a_large_call_are_moved_as_narrower_rows_and_copied(monkeypatch):
    case = timed("fused_add_rmsnorm", "bf16", 3, 4096, "cpu")
    monkeypatch.setattr(floor, "SMALL", 0)
    narrow = timed("fused_add_rmsnorm", "bf16", 12, 1024, "cpu")
    monkeypatch.setattr(launch, "launcher_of", moving(narrow))
    monkeypatch.setattr(floor, "WIDTHS", (1024,))
    monkeypatch.setattr(
        floor, "choice", lambda case, target: persistent(choice(case, target)) if case.width > 1024 else choice(case, target)
    )
    found = floor.point(case, FakeProvider("numba"), H200, FakeTimer(free=2**24), CPU)
    assert [(row["kernel"], row["status"]) for row in found["results"]] == [
        ("numba", "ok"),
        ("loads and stores, rows of 1024", "ok"),
    ]
    assert found["copy"]["us"]["median"] == 1.0


def persistent(kernel):
    return replace(kernel, config=replace(kernel.config, persistent=True))


def test_every_kernel_of_every_point_can_be_made():
    wanted = list(floor.to_compile(floor.points(), H200))
    assert len(wanted) == len(set(wanted)) > 30
    for make, kernel in wanted:
        if make is not None:
            make(kernel)


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "silu_and_mul"])
def test_an_empty_kernel_waits_and_releases_as_ours_does_and_touches_no_memory(op):
    kernel = choice(timed(op, "bf16", 16, 4096), H200)
    ptx = launch.compile_to_ptx(kernels.make_empty, kernel, (9, 0))
    assert "griddepcontrol.wait" in ptx
    assert "griddepcontrol.launch_dependents" in ptx
    assert not re.search(r"(ld|st)\.global|bulk\.prefetch|bar\.sync", ptx)
    assert assemble(ptx, (9, 0))[0][:4] == b"\x7fELF"


def test_the_moving_kernel_has_the_loads_and_stores_of_ours_and_no_barrier():
    kernel = choice(timed("fused_add_rmsnorm", "bf16", 16, 4096), H200)
    ptx = launch.compile_to_ptx(kernels.make_move, kernel, (9, 0))
    assert ptx.count("ld.global.v4.u32") == 3  # x, residual, weight
    assert ptx.count("st.global.v4.u32") == 2
    assert not re.search(r"bar\.sync|shfl|\.f32", ptx)
