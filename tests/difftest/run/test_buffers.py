"""Guard bands, layouts, snapshots: what a candidate may not touch is watched, and what it is given is what is recorded."""

import mmap
import sys
from pathlib import Path

import pytest
import torch

from difftest.cases import Case
from difftest.run import buffers
from reference.contracts import contract
from reference.formats import FORMATS, bits


def allocated(case):
    return buffers.allocate_inputs(case, case.inputs())


def case(op="rmsnorm", lead=(3,), width=5, regime="normal", **layout):
    return Case(op, "bf16", lead, width, regime, 1, contract(op), **layout)


@pytest.mark.parametrize(
    ("lead", "padding", "strides"),
    [((), 0, (1,)), ((3,), 0, (5, 1)), ((3,), 2, (7, 1)), ((2, 3), 2, (21, 7, 1)), ((0,), 2, (7, 1))],
)
def test_views_have_the_shape_and_the_strides_of_the_case(lead, padding, strides):
    view = allocated(case(lead=lead, padding=(("input", padding),)))["input"].view
    assert tuple(view.shape) == (*lead, 5)
    assert view.stride() == strides


def test_a_gated_row_is_gate_and_up_side_by_side_and_strided_as_one():
    view = allocated(case("silu_and_mul", padding=(("input", 2),)))["input"].view
    assert tuple(view.shape) == (3, 10)
    assert view.stride() == (12, 1)


def test_each_buffer_has_its_own_stride_and_one_that_is_given_as_output_too():
    one = case("fused_add_rmsnorm", padding=(("residual", 4),))
    assert {name: buffer.view.stride()[0] for name, buffer in allocated(one).items() if name != "weight"} == {
        "input": 5,
        "residual": 9,
    }
    assert buffers.allocate_output(case(padding=(("output", 2),), out="given")).view.stride() == (7, 1)


def test_a_buffer_is_on_a_64_byte_boundary_and_a_misaligned_one_is_an_element_past_it():
    given = allocated(case("fused_add_rmsnorm", misaligned=("residual",)))
    assert given["input"].view.data_ptr() % 64 == 0
    assert given["weight"].view.data_ptr() % 64 == 0
    assert given["residual"].view.data_ptr() % 64 == 2


def test_an_untouched_buffer_has_no_stray_writes():
    for buffer in allocated(case(padding=(("input", 3),))).values():
        assert buffer.stray_writes(writable=False) is None


def test_the_row_may_be_overwritten_where_it_is_writable():
    buffer = allocated(case(padding=(("input", 3),)))["input"]
    buffer.view.zero_()
    assert buffer.stray_writes(writable=True) is None
    assert "15 elements overwritten, the first at row 0, column 0" in buffer.stray_writes(writable=False)


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (-1, "1 before its start"),
        (5, "1 past the end of row 0"),
        (8 + 7, "3 past the end of row 1"),
        (2 * 8 + 5, "1 past the end of row 2"),
    ],
)
def test_one_stray_element_is_found_and_placed(offset, said):
    buffer = allocated(case(padding=(("input", 3),)))["input"]
    buffer.storage[buffer.base + offset] = 0
    assert buffer.stray_writes(writable=True) == f"input: 1 element overwritten, the first {said}"


def test_a_stray_write_of_nan_is_found_too():
    buffer = allocated(case())["input"]
    buffer.storage[buffer.base - 1] = float("nan")
    assert buffer.stray_writes(writable=True)


@pytest.mark.parametrize("dtype", FORMATS.values())
def test_poison_is_a_nan_that_arithmetic_does_not_make(dtype):
    poison = torch.tensor([dtype.poison], dtype=dtype.bits).view(dtype.torch)
    assert bool(poison.isnan())
    made = torch.tensor([float("inf")], dtype=dtype.torch) * 0
    assert not torch.equal(bits(made), bits(poison))


def test_a_snapshot_keeps_the_values_from_before_the_call():
    buffer = allocated(case(padding=(("input", 3),)))["input"]
    before = buffer.view.clone()
    buffer.view.zero_()
    assert torch.equal(buffer.snapshot(), before)
    assert buffer.snapshot().is_contiguous()


FAR = 2**31 + 8  # elements between two rows
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory of which what is written alone takes room: Linux")


@linux
def test_rows_gigabytes_apart_take_the_room_of_the_rows():
    before = resident()
    buffer = allocated(case(padding=(("input", FAR),)))["input"]
    assert buffer.view.stride() == (5 + FAR, 1)
    assert buffer.storage.nbytes > 2 * FAR
    assert torch.equal(buffer.snapshot(), case().inputs()["input"])
    assert resident() - before < 2**26


@linux
@pytest.mark.parametrize(
    ("row", "column", "said"),
    [(0, -1, "1 before its start"), (1, 5, "1 past the end of row 1"), (2, 7, "3 past the end of row 2")],
)
def test_what_is_written_beside_such_a_row_is_found_and_placed(row, column, said):
    buffer = allocated(case(padding=(("input", FAR),)))["input"]
    assert buffer.stray_writes(writable=False) is None
    buffer.view.zero_()
    assert buffer.stray_writes(writable=True) is None
    buffer.storage[buffer.base + row * (5 + FAR) + column] = 0
    assert buffer.stray_writes(writable=True) == f"input: 1 element overwritten, the first {said}"
    buffer.restore()
    assert buffer.stray_writes(writable=False) is None


def resident():
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_an_output_to_be_filled_holds_nothing_but_poison():
    output = buffers.allocate_output(case())
    assert bool(output.view.isnan().all())


def test_overlap_is_of_spans_of_memory():
    whole = torch.zeros(10)
    assert buffers.overlap(whole[:6], whole[5:])
    assert not buffers.overlap(whole[:5], whole[5:])
    assert not buffers.overlap(whole[:0], whole)
    assert not buffers.overlap(torch.zeros(3), torch.zeros(3))


def test_memory_that_torch_hands_out_uninitialised_is_nan_during_a_call_and_only_then():
    with buffers.poisoned_allocations():
        assert bool(torch.empty(1000, dtype=torch.bfloat16).isnan().all())
        assert bool(torch.empty_like(torch.zeros(1000)).isnan().all())
    assert not torch.are_deterministic_algorithms_enabled()
