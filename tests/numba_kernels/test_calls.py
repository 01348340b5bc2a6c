"""Remembered calls: a call like an earlier one is launched at once, and checked anew where its addresses or PyTorch ask for it.

With tensors that say they are on a GPU, and a launch that only notes what it was given.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from numba_kernels.declarations import OPERATORS
from numba_kernels.runtime import arrays, calls, launch


class Claimed:
    """A tensor that claims to be on a GPU, at an address of its own choice."""

    requires_grad = False
    inference = negated = False

    def __init__(self, shape, address, dtype="bfloat16"):
        self.shape, self.address, self.dtype = shape, address, dtype

    def is_inference(self):
        return self.inference

    def is_neg(self):
        return self.negated

    def stride(self):
        return tuple(torch.empty(self.shape, device="meta").stride())

    def get_device(self):
        return 0

    def data_ptr(self):
        return self.address

    def new_empty(self, shape):
        return Claimed(tuple(shape), 1 << 20, self.dtype)

    @property
    def bytes(self):
        return 2 * torch.Size(self.shape).numel()


@pytest.fixture
def remembering(monkeypatch):
    """``make(name)``: an operator's call, that remembers every kind it checks; and a note of what it did."""
    note = SimpleNamespace(checked=0, launched=[], told=[], modes=0)

    def run_checked(operator, known, direct, key, given, values):
        note.checked += 1
        tensors = [values[operator.arguments.index(t.name)] for t in operator.tensors] + [given] * operator.returns_out
        prepared = SimpleNamespace(launch=lambda *args: note.launched.append(args))
        sizes = [t.bytes for t in tensors]
        known[key] = (prepared, lambda device: 70 + device, lambda: note.modes, note.told.append, 0, *sizes)
        return given

    monkeypatch.setattr(calls, "run_checked", run_checked)
    return (lambda name, **options: calls.make_call(OPERATORS[name], **options)), note


X, RESIDUAL, WEIGHT = Claimed((4, 64), 4096), Claimed((4, 64), 8192), Claimed((64,), 12288 + 2)
PAIR = Claimed((4, 128), 4096)


def test_the_second_call_of_a_kind_is_launched_at_once(remembering):
    make, note = remembering
    add_norm, norm, gated = make("fused_add_rmsnorm"), make("rmsnorm"), make("silu_and_mul")
    for _ in range(2):
        assert add_norm(X, RESIDUAL, WEIGHT) is None
        out = norm(X, WEIGHT)
        half = gated(PAIR)
    assert note.checked == 3
    assert (out.shape, half.shape) == ((4, 64), (4, 64))
    assert note.launched == [
        ((4096, 8192, 12290, 4096), 2 << 4, 70),
        ((4096, 4096, 12290, 1 << 20), 2 << 4, 70),
        ((4096, 1 << 20), 0, 70),
    ]
    assert note.told == [(X, RESIDUAL)]


def test_a_lazily_negated_tensor_is_another_kind_and_so_checked(remembering):
    make, note = remembering
    norm, negated = make("rmsnorm"), Claimed((4, 64), 4096)
    negated.negated = True
    norm(X, WEIGHT)
    norm(X, WEIGHT)
    norm(negated, WEIGHT)
    assert (note.checked, len(note.launched)) == (2, 1)


def test_a_tensor_that_inference_mode_has_closed_is_checked_anew(remembering, monkeypatch):
    make, note = remembering
    add_norm, closed = make("fused_add_rmsnorm"), {}
    monkeypatch.setattr(calls.dispatch, "is_closed", lambda value: closed.get(value, False))
    residual = Claimed((4, 64), 8192)
    residual.inference = True
    for _ in range(2):
        add_norm(X, residual, WEIGHT)
    assert (note.checked, len(note.launched)) == (1, 1)
    closed[residual] = True
    add_norm(X, residual, WEIGHT)
    assert (note.checked, len(note.launched)) == (2, 1)


def test_what_is_written_is_told_to_autograd(remembering):
    make, note = remembering
    norm, gated, out = make("rmsnorm"), make("silu_and_mul"), Claimed((4, 64), 1 << 16)
    for _ in range(2):
        assert norm(X, WEIGHT, out=out) is out
        assert gated(PAIR, out) is out
    assert note.told == [(out,), (out,)]


@pytest.mark.parametrize("direct", [False, True])
def test_a_call_that_a_dispatch_mode_must_see_is_checked_anew_unless_it_has_seen_it(direct, remembering):
    make, note = remembering
    norm = make("rmsnorm", direct=direct)
    norm(X, WEIGHT)
    note.modes = 1
    norm(X, WEIGHT)
    assert note.checked == (1 if direct else 2)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (5, 64)},
        {"dtype": "float16"},
        {"stride": lambda: (128, 1)},
        {"get_device": lambda: 1},
        {"requires_grad": True},
        {"address": 0},
        {"address": 8192 - 256},  # runs into the residual
        {"address": 12288 + 128},  # and out of the weight
    ],
    ids=lambda change: "-".join(map(str, change)),
)
def test_a_call_that_differs_where_it_matters_is_checked_anew(change, remembering):
    make, note = remembering
    add_norm, other = make("fused_add_rmsnorm"), Claimed((4, 64), 4096)
    add_norm(X, RESIDUAL, WEIGHT)
    for name, value in change.items():
        setattr(other, name, value)
    add_norm(other, RESIDUAL, WEIGHT)
    assert note.checked == 2


@pytest.mark.parametrize("options", [{"eps": 1e-5}, {"contract": "R1W0"}, {"enable_pdl": False}])
def test_a_call_with_other_options_is_checked_anew(options, remembering):
    make, note = remembering
    add_norm = make("fused_add_rmsnorm")
    add_norm(X, RESIDUAL, WEIGHT)
    add_norm(X, RESIDUAL, WEIGHT, **options)
    assert note.checked == 2


def test_out_may_be_the_input_of_a_norm_and_no_part_of_it(remembering):
    make, note = remembering
    norm = make("rmsnorm")
    norm(X, WEIGHT, out=Claimed((4, 64), 1 << 16))
    norm(X, WEIGHT, out=Claimed((4, 64), 4096))
    assert note.checked == 1
    norm(X, WEIGHT, out=Claimed((4, 64), 4096 + 128))
    assert note.checked == 2


def test_out_may_not_be_the_input_of_a_gated_form(remembering):
    make, note = remembering
    gated = make("silu_and_mul")
    gated(PAIR, Claimed((4, 64), 1 << 16))
    gated(PAIR, Claimed((4, 64), 4096))
    assert note.checked == 2


def test_the_oldest_kind_is_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(calls, "KNOWN_LIMIT", 2)
    known = dict.fromkeys("ab")
    calls.remember(known, "c", ())
    assert list(known) == ["b", "c"]


@pytest.fixture
def claimed_gpu(monkeypatch):
    """Checked calls find every tensor on the second GPU; what they launch is noted as (plan, device, addresses, key, stream)."""
    launched = []

    class Prepared:
        def __init__(self, plan, device, enable_pdl):
            self.plan, self.device = plan, device

        def launch(self, addresses, alignment, stream):
            launched.append((self.plan, self.device, addresses, alignment, stream))

    def describe(name, value):
        return replace(arrays.describe(name, value), device=1, stream=81)

    monkeypatch.setattr(calls, "describe", describe)
    monkeypatch.setattr(launch, "Prepared", Prepared)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 80 + device, raising=False)
    return launched


@pytest.mark.parametrize("name", ["fused_add_rmsnorm", "gemma_rmsnorm", "silu_and_mul"])
def test_a_checked_call_is_launched_and_the_next_of_its_kind_in_the_same_way(name, claimed_gpu):
    operator = OPERATORS[name]
    call, out = calls.make_call(operator), torch.zeros(4, 64)
    x = torch.ones(4, 128 if operator.halves_input else 64)
    tensors = [x, torch.ones(4, 64), torch.ones(64)][: len(operator.tensors)]
    if name == "gemma_rmsnorm":
        tensors = [x, torch.ones(64)]
    versions = [t._version for t in (*tensors, out)]
    for _ in range(3):
        call(*tensors, **({"out": out} if operator.returns_out else {}))
    (plan, device, addresses, _, stream), again, third = claimed_gpu
    places = dict(zip((t.name for t in operator.tensors), (t.data_ptr() for t in tensors), strict=True)) | {"out": out.data_ptr()}
    assert addresses == tuple(places[name] for name in operator.buffer_arguments())
    assert (device, stream, plan.rows, plan.width) == (1, 81, 4, 64)
    assert again[:3] == third[:3] == (plan, device, addresses)
    assert again[4] == stream
    told = [after._version - before for before, after in zip(versions, (*tensors, out), strict=True)]
    assert told == [3 * (n in operator.written) for n in (*(t.name for t in operator.tensors), "out")]
