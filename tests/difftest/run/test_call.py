"""A call of a candidate: whatever it does to leave, to dodge the memory it was handed or to reuse its own is found."""

import dataclasses
import warnings

import pytest
import torch
from click.testing import CliRunner

import reference.providers
from difftest import cli
from difftest.cases import Case
from difftest.errors import UsageError
from difftest.providers.resolve import resolve
from difftest.run import buffers, stability
from difftest.run.call import call
from difftest.run.check import Skip, check
from reference.contracts import contract
from reference.providers.torch_plain import TorchPlain

CPU = torch.device("cpu")
NORM = Case("rmsnorm", "bf16", (4,), 64, "normal", 1, contract("rmsnorm"))
ADD_NORM = Case("fused_add_rmsnorm", "bf16", (4,), 64, "normal", 1, contract("fused_add_rmsnorm"))
OUT = Case("rmsnorm", "bf16", (4,), 64, "normal", 1, contract("rmsnorm"), out="given")
SMALL = ("--dtypes", "bf16", "--widths", 3, "--cases", 0)


def right(input, weight, eps):
    rows = input.float()
    return (rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight.float()).to(input.dtype)


def right_in_place(input, residual, weight, eps):
    residual_sum = input.float() + residual.float()
    residual.copy_(residual_sum)
    input.copy_(residual_sum * torch.rsqrt(residual_sum.square().mean(-1, keepdim=True) + eps) * weight.float())


def called(function, case=NORM):
    return call(case, function, case.inputs())


class Candidate(TorchPlain):
    """A function as a provider."""

    def __init__(self, own):
        super().__init__()
        self.own = own

    def function(self, op, contract=None):
        return self.own


def reasons(function, case=NORM):
    (result,) = check(case, Candidate(function), [TorchPlain()], again=True)
    return result.reasons


@pytest.fixture
def file(tmp_path):
    """A candidate's file with the text given, spelled for the command line."""

    def write(text, function="rmsnorm"):
        path = tmp_path / "candidate.py"
        path.write_text(text)
        return f"{path}:{function}"

    return write


# --- leaving ------------------------------------------------------------------------------------------------------------

LEAVES = {
    "sys.exit(0)": "raised SystemExit: 0 (candidate.py:4)",
    "os._exit(0)": "raised SystemExit: 0 (candidate.py:4)",
    "raise BaseException('no')": "raised BaseException: no (candidate.py:4)",
}


@pytest.mark.parametrize("leave", LEAVES)
def test_a_candidate_that_ends_the_process_with_0_is_a_difference_in_the_run_and_when_replayed(difftest, file, leave, tmp_path):
    spec = file(f"import os, sys\n\ndef rmsnorm(input, weight, eps):\n    {leave}\n")
    run = difftest("--candidate", spec, *SMALL)
    assert run.status == 1
    assert {tuple(case["reasons"]) for case in run.json["cases"]} == {(LEAVES[leave],)}
    (saved,) = (tmp_path / "failures").iterdir()
    assert CliRunner().invoke(cli.main, ["replay", str(saved), "--failures", str(tmp_path / "again")]).exit_code == 1


@pytest.mark.parametrize("leave", ["sys.exit(0)", "os._exit(0)", "raise BaseException"])
def test_a_file_that_ends_the_process_when_it_is_imported_is_bad_usage(difftest, file, leave):
    run = difftest("--candidate", file(f"import os, sys\n{leave}\n"), *SMALL)
    assert run.status == 2
    assert "does not import: " in run.err


def test_an_entry_point_that_ends_the_process_when_it_is_loaded_is_bad_usage(monkeypatch):
    def leave(name):
        raise SystemExit(0)

    monkeypatch.setattr(reference.providers, "get", leave)
    with pytest.raises(UsageError, match="theirs does not import: SystemExit: 0"):
        resolve("theirs")


def test_a_reference_or_a_provider_that_leaves_is_left_out():
    def leave(*inputs):
        raise SystemExit(0)

    class Leaves(TorchPlain):
        function = leave

    (result,) = check(NORM, Candidate(right), [Candidate(leave)])
    assert result == Skip(NORM, "torch", "raised SystemExit: 0")
    (result,) = check(NORM, Leaves(), [TorchPlain()])
    assert result == Skip(NORM, "torch", "torch: raised SystemExit: 0")


def test_ctrl_c_in_a_call_or_an_import_is_nobody_s_finding(file):
    def interrupt(input, weight, eps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        called(interrupt)
    with pytest.raises(KeyboardInterrupt):
        resolve(file("raise KeyboardInterrupt\n"))


def test_a_process_that_the_candidate_forks_still_ends_by_exit(file):
    spec = file("import os\n\ndef rmsnorm():\n    child = os.fork()\n    child or os._exit(5)\n    return os.waitpid(child, 0)\n")
    function = resolve(spec).function("rmsnorm")
    seen = []
    called(lambda input, weight, eps: seen.append(function()))
    assert [status >> 8 for _, status in seen] == [5]


# --- the memory handed over -----------------------------------------------------------------------------------------------


def by_data(tensor, new):
    tensor.data = new


REBINDS = {"data": by_data, "set_": lambda tensor, new: tensor.set_(new)}


@pytest.mark.parametrize("how", REBINDS)
@pytest.mark.parametrize("names", [("input",), ("residual",), ("input", "residual")])
def test_a_tensor_rebound_to_other_memory_is_no_work_in_place(names, how):
    def rebinds(input, residual, weight, eps):
        new = {"input": input.clone(), "residual": residual.clone()}
        right_in_place(new["input"], new["residual"], weight, eps)
        for name, tensor in (("input", input), ("residual", residual)):
            REBINDS[how](tensor, new[name]) if name in names else tensor.copy_(new[name])

    assert called(right_in_place, ADD_NORM).faults == []
    found = called(rebinds, ADD_NORM)
    assert found.faults == [f"{name} was rebound to other memory; fused_add_rmsnorm works in place" for name in names]
    given = buffers.allocate_inputs(ADD_NORM, ADD_NORM.inputs())
    for name, output in (("input", "output"), ("residual", "residual")):
        assert torch.equal(found.outputs[output], given[name].view) == (name in names)
    assert set(called(rebinds, ADD_NORM).faults) <= set(reasons(rebinds, ADD_NORM))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda input: input.resize_(1), "input has shape (1,) after the call, not (4, 64); rmsnorm leaves its input as it is"),
        (lambda input: input.t_(), "input has shape (64, 4) after the call, not (4, 64); rmsnorm leaves its input as it is"),
        (lambda input: input.as_strided_((4, 64), (1, 4)), "input has strides (1, 4) after the call, not (64, 1); rmsnorm"),
        (lambda input: by_data(input, input.clone()), "input was rebound to other memory; rmsnorm leaves its input as it is"),
        (lambda input: input.untyped_storage().resize_(0), "input was freed; rmsnorm leaves its input as it is"),
    ],
)
def test_an_input_that_is_another_after_the_call_is_a_fault(change, said):
    def changes(input, weight, eps):
        output = right(input, weight, eps)
        change(input)
        return output

    assert called(changes).faults[0].startswith(said)


def test_the_shape_expected_is_the_case_s_and_not_that_of_the_input_after_the_call():
    def resizes(input, weight, eps):
        return right(input.resize_(1), weight, eps)

    found = called(resizes, Case("rmsnorm", "bf16", (1,), 3, "normal", 1, contract("rmsnorm")))
    assert "output has shape (3,), not (1, 3)" in found.faults


def test_a_parameter_in_an_in_place_sum_leaves_the_memory_readable():
    def trains(input, residual, weight, eps):
        right_in_place(input, residual, torch.nn.Parameter(weight.clone()), eps)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reasons(trains, ADD_NORM) == ()


# --- out ------------------------------------------------------------------------------------------------------------------


def test_out_rebound_to_other_memory_is_not_filled():
    def rebinds(input, weight, eps, out=None):
        out.data = right(input, weight, eps)

    found = called(rebinds, OUT)
    assert found.faults == ["out was rebound to other memory; the result belongs in the memory that it came with"]
    assert bool(found.outputs["output"].isnan().all())


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (lambda out: torch.zeros_like(out), ", which differs from it in 256 of 256 elements"),
        (lambda out: out.float(), ", torch.float32 (4, 64)"),
        (lambda out: out.clone().flatten(), ", torch.bfloat16 (256,)"),
        (lambda out: out.to("meta"), ", torch.bfloat16 (4, 64)"),
    ],
)
def test_a_tensor_returned_beside_out_must_not_say_something_else(returns, said):
    def fills(input, weight, eps, out=None):
        return returns(out.copy_(right(input, weight, eps)))

    assert called(fills, OUT).faults == [f"was given out and returned another tensor{said}"]
    assert reasons(fills, OUT)[0] == f"was given out and returned another tensor{said}"


@pytest.mark.parametrize(
    "returns", [lambda out: out, lambda out: None, lambda out: out.clone(), lambda out: out.view(-1), lambda out: out.detach()]
)
def test_out_itself_a_view_or_an_equal_copy_of_it_and_nothing_may_be_returned(returns):
    def fills(input, weight, eps, out=None):
        return returns(out.copy_(right(input, weight, eps)))

    assert reasons(fills, OUT) == ()


def test_a_nan_beside_out_equals_a_nan_of_other_bits():
    def fills(input, weight, eps, out=None):
        out.fill_(float("nan"))
        copy = out.clone()
        copy.view(torch.int16).fill_(0x7FC1)
        return copy

    assert called(fills, OUT).faults == []


# --- one result and the next ----------------------------------------------------------------------------------------------


def workspace(size):
    """A norm whose results are views of one buffer; `size` elements of it are in use at a time."""
    kept = torch.empty(1 << 12, dtype=torch.bfloat16)
    count = 0

    def norm(input, weight, eps):
        nonlocal count
        start = count * size % 512
        count += 1
        return kept[start : start + input.numel()].view(input.shape).copy_(right(input, weight, eps))

    return norm


def test_a_result_in_a_buffer_that_the_next_call_fills_too_is_a_difference():
    said = "the result of one call is overwritten by the next: both are in the same memory"
    assert reasons(workspace(0)) == (said,)
    assert reasons(workspace(128)) == ("the result of one call is overwritten by the next: 128 elements of it changed",)


def test_results_in_parts_of_one_buffer_that_do_not_touch_are_none():
    assert reasons(workspace(256)) == ()


def test_the_results_that_are_compared_are_let_go_of(monkeypatch):
    calls = []

    def recording(*words):
        calls.append(call(*words))
        return calls[-1]

    monkeypatch.setattr(stability, "call", recording)
    first = recording(NORM, right, NORM.inputs())
    assert torch.equal(first.returned.now(), first.outputs["output"])
    assert stability.check(NORM, right, NORM.inputs(), first, False).reasons == ()
    assert [each.returned for each in calls[:2]] == [None, None]


# --- what is no output ----------------------------------------------------------------------------------------------------


async def later(*inputs):
    return 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda *inputs: 3, "returned int, not a tensor"),
        (lambda *inputs: None, "returned None, not a tensor"),
        (lambda input, *_: input.float().numpy(), "returned ndarray, not a tensor"),
        (later, "returned coroutine, not a tensor"),
        (lambda input, *_: input.clone().to_sparse(), "output has layout torch.sparse_coo, not torch.strided"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_tensor_is_named_without_a_warning(function, said):
    assert called(function).faults == [said]


@pytest.mark.filterwarnings("error")
def test_what_is_returned_in_place_of_working_in_place_is_named():
    said = "and overwrote nothing; fused_add_rmsnorm works in place"
    assert called(later, ADD_NORM).faults == [f"returned coroutine {said}"]
    assert called(lambda *inputs: (1, 2), ADD_NORM).faults == [f"returned tuple {said}"]


@pytest.mark.filterwarnings("error")
def test_an_output_with_a_gradient_is_judged_without_a_warning():
    assert reasons(lambda input, weight, eps: right(input, torch.nn.Parameter(weight.clone()), eps)) == ()


# --- out is the input ---------------------------------------------------------------------------------------------------

ALIASED = dataclasses.replace(OUT, out="input")


def test_a_result_may_land_in_the_input_only_where_the_input_is_handed_over_as_out():
    def in_its_input(input, weight, eps, out=None):
        return input.copy_(right(input, weight, eps)) if out is None else out.copy_(right(input, weight, eps))

    assert reasons(in_its_input, ALIASED) == ()
    assert called(in_its_input, OUT).faults == []
    assert called(in_its_input).failure == "output shares memory with input"


def test_the_input_is_handed_over_as_the_same_tensor_twice_and_its_surroundings_are_watched():
    def past_the_row(input, weight, eps, out):
        assert out is input
        out.as_strided((1,), (1,), out.storage_offset() - 1).zero_()
        return out.copy_(right(input, weight, eps))

    assert called(past_the_row, ALIASED).faults == ["input: 1 element overwritten, the first 1 before its start"]


def test_a_kernel_that_is_wrong_in_place_alone_differs():
    def wrong(input, weight, eps, out=None):
        result = right(input, weight, eps)
        return result if out is None else out.copy_(2 * result if out is input else result)

    assert reasons(wrong, OUT) == ()
    assert reasons(wrong, ALIASED)
