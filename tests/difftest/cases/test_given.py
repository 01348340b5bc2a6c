"""Inputs that no regime draws: written out bit by bit, or in a file, and refused in one line where they are of no call."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from difftest.cases import Case, file
from difftest.cases.given import File, Values
from reference.contracts import contract
from reference.formats import FORMATS, bits


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "silu_and_mul", "swigluoai_and_mul"])
def test_values_written_out_are_read_back_bit_for_bit(op, dtype):
    case = Case(op, dtype, (2, 3), 9, "inf_nan", 5, contract(op))
    drawn = case.inputs()
    written = Case.from_json(replace(case, regime="normal", given=Values.of(drawn)).to_json())
    assert all(torch.equal(bits(drawn[name]), bits(found)) for name, found in written.inputs().items())


def test_a_run_of_equal_values_is_written_once():
    values = Values.of({"input": torch.tensor([1, 1, 1, -2.0], dtype=torch.bfloat16)})
    assert values.to_json() == {"values": {"input": "3f80*3 c000"}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"input": "3f80*3"}, "the call takes input, weight"),
        ({"input": "3f80*3", "weight": "3f8"}, "weight: '3f8' is not 4 hexadecimal digits"),
        ({"input": "3f80*3", "weight": "3f80*0"}, "weight: '3f80\\*0' is not"),
        ({"input": "3f80*3", "weight": "3f80*2"}, "weight is torch.bfloat16 \\(2,\\), the case's torch.bfloat16 \\(3,\\)"),
    ],
)
def test_values_of_another_call_are_refused(words, said):
    case = Case("rmsnorm", "bf16", (1,), 3, "normal", 0, contract("rmsnorm"), given=Values(tuple(words.items())))
    with pytest.raises(ValueError, match=said):
        case.inputs()


def saved(path, tensors):
    """The tensors in a file of that name; bf16 as ml_dtypes has it in .npz."""
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        bf16 = torch.bfloat16
        arrays = {
            k: t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if t.dtype == bf16 else t.numpy() for k, t in tensors.items()
        }
        np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("name", ["x.safetensors", "x.npz"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_gate_and_up_of_a_file_are_one_input_however_the_operator_lays_them_out(tmp_path, name, dtype):
    gate, up = torch.randn(2, 3, 8).to(FORMATS[dtype].torch), torch.randn(2, 3, 8).to(FORMATS[dtype].torch)
    path = saved(tmp_path / name, {"gate": gate, "up": up})
    for op in ("silu_and_mul", "swigluoai_and_mul"):
        given = File(op, str(path), file.digest(path))
        case = Case(op, dtype, (2, 3), 8, "file", 0, contract(op), given=given)
        split = case.operator.split(Case.from_json(case.to_json()).inputs())
        assert torch.equal(split["gate"], gate)
        assert torch.equal(split["up"], up)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"x": torch.ones(3)}, "holds 'x', which no operator takes; allowed: input"),
        ({"input": torch.ones(3, dtype=torch.float64)}, "input is .*float64; allowed: fp16, bf16, fp32"),
        ({"input": torch.ones(2, 3)}, "rmsnorm takes input, weight; weight is missing"),
        ({"input": torch.ones(2, 3), "weight": torch.ones(4)}, "weight has shape \\(4,\\), not \\(3,\\)"),
        ({"input": torch.ones(2, 3), "weight": torch.ones(3).half()}, "weight is torch.float16; allowed"),
        ({"input": torch.ones(()), "weight": torch.ones(3)}, "input has shape \\(\\): no row"),
    ],
)
@pytest.mark.parametrize("name", ["x.safetensors", "x.npz"])
def test_tensors_of_a_file_that_fit_no_call_are_named(tmp_path, name, tensors, said):
    path = saved(tmp_path / name, tensors)
    with pytest.raises(ValueError, match=said):
        file.inputs_of("rmsnorm", file.load(path, file.digest(path)))


def test_a_pickle_is_never_loaded(tmp_path):
    np.savez(tmp_path / "x.npz", input=np.array([object()]))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        file.load(tmp_path / "x.npz", file.digest(tmp_path / "x.npz"))


def test_a_file_that_is_another_than_it_was_is_refused(tmp_path):
    path = saved(tmp_path / "x.npz", {"input": torch.ones(2, 3), "weight": torch.ones(3)})
    case = Case("rmsnorm", "fp32", (2,), 3, "file", 0, contract("rmsnorm"), given=File("rmsnorm", str(path), file.digest(path)))
    assert torch.equal(case.inputs()["input"], torch.ones(2, 3))
    file.load.cache_clear()  # what has been read with that sha256 is what it was
    saved(path, {"input": torch.zeros(2, 3), "weight": torch.ones(3)})
    with pytest.raises(ValueError, match="is another file than it was"):
        case.inputs()


@pytest.mark.parametrize("name", ["x.pt", "x.npz", "x.safetensors"])
def test_what_is_no_such_file_is_refused(tmp_path, name):
    (tmp_path / name).write_text("not tensors")
    with pytest.raises(ValueError, match=r"neither of|is no"):
        file.load(tmp_path / name, file.digest(tmp_path / name))
