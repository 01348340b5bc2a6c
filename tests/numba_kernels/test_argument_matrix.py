"""Every operator over every kind of argument: the right bits, or an error that names the argument; other memory stays as it was.

Each argument lies in a buffer of its own, among elements that nobody may touch. A kind of argument says itself what is to become
of a call with it; what a call gives is compared with the bits of the same call on plain arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import numba_kernels
from numba_kernels.declarations import OPERATORS, Role

from .rows import DTYPES

WIDTH, LEADS = 8, ((), (1,), (3,), (2, 3))
TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
OTHER = {"fp32": "fp16", "fp16": "bf16", "bf16": "fp16"}
RIGHT = None


@dataclass(frozen=True)
class Slot:
    """An argument's place: its name, shape and dtype, whether it is written, and on what it lies ("numpy", "cpu", "cuda")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: bool
    vector: bool
    place: str

    @property
    def rows(self) -> int:
        return int(np.prod(self.shape[:-1]))


class Memory:
    """A buffer filled with a pattern. ``view`` gives elements of it; ``kept`` says whether all others are as they were."""

    def __init__(self, slot: Slot, size: int) -> None:
        pattern = (np.arange(size) % 7 + 1).astype(np.float32).astype(DTYPES[slot.dtype])
        self.words = pattern.view(np.uint16 if pattern.itemsize == 2 else np.uint32)
        self.array = pattern
        self.tensor = None
        if slot.place != "numpy":
            signed = torch.from_numpy(self.words.view(np.int16 if pattern.itemsize == 2 else np.int32))
            self.tensor = signed.to(slot.place).view(TORCH[slot.dtype])
        self.before = self.read().copy()

    def read(self) -> np.ndarray:
        """The bits of the whole buffer."""
        if self.tensor is None:
            return self.words
        signed = torch.int16 if self.tensor.itemsize == 2 else torch.int32
        return self.tensor.view(signed).cpu().numpy().view(self.words.dtype)

    def view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Elements from ``offset`` on, strides in elements."""
        if self.tensor is not None:
            return self.tensor.as_strided(shape, strides, offset)
        size = self.array.itemsize
        return np.lib.stride_tricks.as_strided(self.array[offset:], shape, tuple(s * size for s in strides))


@dataclass
class Argument:
    """What is handed over, the elements behind it (as positions in the buffer), and the buffer."""

    value: Any
    places: np.ndarray | None = None
    memory: Memory | None = None

    def bits(self) -> np.ndarray:
        """Its elements' bits, in its shape."""
        return self.memory.read()[self.places]

    def untouched(self, written: bool) -> bool:
        """Whether nothing changed: nothing at all, or nothing beside its own elements where they are ``written``."""
        if self.memory is None:
            return True
        changed = self.memory.read() != self.memory.before
        if written and self.places is not None:
            changed[self.places] = False
        return not changed.any()


Expected = type[Exception] | None


@dataclass(frozen=True)
class Kind:
    """A kind of argument: how it is made of a slot (None: not of this one), and what is to become of a call with it."""

    name: str
    make: Callable[[Slot], Argument | None]
    outcome: Callable[[Slot], Expected]


KINDS: dict[str, Kind] = {}


def kind(outcome: Expected | Callable[[Slot], Expected]) -> Callable:
    """Registers a kind by its function's name."""

    def register(make: Callable[[Slot], Argument | None]) -> Callable:
        name = make.__name__.replace("_", " ")
        KINDS[name] = Kind(name, make, outcome if callable(outcome) and not isinstance(outcome, type) else lambda slot: outcome)
        return make

    return register


def if_written(error: type[Exception]) -> Callable[[Slot], Expected]:
    return lambda slot: error if slot.written else RIGHT


def strided(slot: Slot, offset: int, pitch: int, inner: int = 1, shape: tuple[int, ...] | None = None) -> Argument:
    """Rows ``pitch`` elements apart, from ``offset`` on."""
    shape = slot.shape if shape is None else shape
    strides, step = [inner], pitch
    for extent in reversed(shape[:-1]):
        strides.insert(0, step)
        step *= extent
    reach = sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) + 1
    start = offset + sum((n - 1) * -s for n, s in zip(shape, strides, strict=True) if s < 0)
    memory = Memory(slot, offset + reach + 16)
    places = start + sum(np.indices(shape)[axis] * s for axis, s in enumerate(strides))
    return Argument(memory.view(start, shape, tuple(strides)), places, memory)


def converted(slot: Slot, change: Callable[[Any], Any]) -> Argument:
    """A plain one, with something done to what is handed over."""
    argument = strided(slot, 8, slot.shape[-1])
    return Argument(change(argument.value), argument.places, argument.memory)


def numpy_only(slot: Slot, change: Callable[[np.ndarray], Any]) -> Argument | None:
    return converted(slot, change) if slot.place == "numpy" else None


def torch_only(slot: Slot, change: Callable[[torch.Tensor], Any]) -> Argument | None:
    return converted(slot, change) if slot.place != "numpy" else None


def on_the_cpu(slot: Slot, change: Callable[[torch.Tensor], Any]) -> Argument | None:
    return converted(slot, change) if slot.place == "cpu" else None


# --- layouts ------------------------------------------------------------------------------------------------------------


@kind(RIGHT)
def plain(slot):
    return strided(slot, 8, slot.shape[-1])


@kind(RIGHT)
def off_its_alignment(slot):
    return strided(slot, 9, slot.shape[-1])


@kind(RIGHT)
def padded_rows(slot):
    return strided(slot, 8, slot.shape[-1] + 5)


@kind(RIGHT)
def padded_rows_off_their_alignment(slot):
    return strided(slot, 11, slot.shape[-1] + 3)


@kind(RIGHT)
def any_stride_of_an_axis_of_one(slot):
    if slot.rows != 1 or len(slot.shape) < 2:
        return None
    argument = strided(slot, 8, slot.shape[-1])
    return Argument(argument.memory.view(8, slot.shape, (*(3,) * (len(slot.shape) - 1), 1)), argument.places, argument.memory)


@kind(if_written(ValueError))
def one_row_for_all(slot):
    return strided(slot, 8, 0) if slot.rows > 1 else None


@kind(if_written(ValueError))
def rows_that_overlap(slot):
    return strided(slot, 8, slot.shape[-1] // 2) if slot.rows > 1 else None


@kind(ValueError)
def every_second_element(slot):
    return strided(slot, 8, 2 * slot.shape[-1], 2)


@kind(ValueError)
def elements_backwards(slot):
    return strided(slot, 8, slot.shape[-1], -1) if slot.place == "numpy" else None


@kind(ValueError)
def rows_backwards(slot):
    return strided(slot, 8, -slot.shape[-1]) if slot.place == "numpy" and slot.rows > 1 and len(slot.shape) == 2 else None


@kind(ValueError)
def one_element_for_all(slot):
    return strided(slot, 8, 0, 0)


@kind(ValueError)
def columns_first(slot):
    if slot.rows < 2 or len(slot.shape) != 2:
        return None
    rows, width = slot.shape
    memory = Memory(slot, 16 + rows * width)
    places = 8 + np.indices(slot.shape)[0] + np.indices(slot.shape)[1] * rows
    return Argument(memory.view(8, slot.shape, (1, rows)), places, memory)


@kind(ValueError)
def leading_axes_that_do_not_flatten(slot):
    if len(slot.shape) != 3:
        return None
    a, b, width = slot.shape
    memory = Memory(slot, 16 + a * b * width)
    places = 8 + np.indices(slot.shape)[0] * width + np.indices(slot.shape)[1] * a * width + np.indices(slot.shape)[2]
    return Argument(memory.view(8, slot.shape, (width, a * width, 1)), places, memory)


@kind(ValueError)
def bytes_off_an_element(slot):
    if slot.place != "numpy":
        return None
    raw = np.ones(int(np.prod(slot.shape)) * DTYPES[slot.dtype].itemsize + 1, np.uint8)
    return Argument(raw[1:].view(DTYPES[slot.dtype]).reshape(slot.shape))


# --- shapes -------------------------------------------------------------------------------------------------------------


@kind(lambda slot: RIGHT if slot.name == "input" and slot.shape[:-1] == () else ValueError)
def a_row_more(slot):
    if slot.name == "input" or slot.vector or not slot.shape[:-1]:
        return None
    return strided(slot, 8, slot.shape[-1], shape=(slot.shape[0] + 1, *slot.shape[1:]))


@kind(ValueError)
def an_element_less(slot):
    return strided(slot, 8, slot.shape[-1], shape=(*slot.shape[:-1], slot.shape[-1] - 1))


@kind(ValueError)
def an_axis_more(slot):
    return strided(slot, 8, slot.shape[-1], shape=(1, *slot.shape)) if slot.name != "input" else None


@kind(ValueError)
def no_axis(slot):
    return Argument(
        strided(slot, 8, slot.shape[-1]).value[(0,) * len(slot.shape)] * 1
        if slot.place != "numpy"
        else np.array(1, DTYPES[slot.dtype])
    )


# --- dtypes -------------------------------------------------------------------------------------------------------------


@kind(TypeError)
def fp64(slot):
    return converted(slot, lambda v: v.astype(np.float64) if slot.place == "numpy" else v.double())


@kind(TypeError)
def the_other_16_bit_dtype(slot):
    if slot.name == "input":
        return None  # the dtype of the input is what all others are held to
    other = OTHER[slot.dtype]
    return converted(slot, lambda v: v.astype(DTYPES[other]) if slot.place == "numpy" else v.to(TORCH[other]))


@kind(TypeError)
def integers(slot):
    return converted(slot, lambda v: v.astype(np.int32) if slot.place == "numpy" else v.to(torch.int32))


@kind(TypeError)
def complex_numbers(slot):
    return converted(slot, lambda v: v.astype(np.complex64) if slot.place == "numpy" else v.to(torch.complex64).conj())


@kind(TypeError)
def the_other_byte_order(slot):
    if slot.place != "numpy" or slot.dtype == "bf16":
        return None
    return converted(slot, lambda v: v.astype(v.dtype.newbyteorder()))


@kind(TypeError)
def python_objects(slot):
    return numpy_only(slot, lambda v: v.astype(object))


@kind(TypeError)
def bytes_without_a_meaning(slot):
    return numpy_only(slot, lambda v: v.copy().view(f"V{v.itemsize}"))


@kind(TypeError)
def fp8(slot):
    return numpy_only(slot, lambda v: v.astype(ml_dtypes.float8_e4m3fn))


@kind(TypeError)
def quantised(slot):
    if slot.place != "cpu":
        return None
    return converted(slot, lambda v: torch.quantize_per_tensor(v.float(), 0.5, 0, torch.qint8))


# --- containers ---------------------------------------------------------------------------------------------------------


@kind(TypeError)
def a_list(slot):
    return converted(slot, lambda v: v.tolist())


@kind(lambda slot: RIGHT if slot.name == "out" else TypeError)
def nothing(slot):
    return Argument(None) if slot.name != "out" else None


@kind(TypeError)
def a_text(slot):
    return Argument("rows")


@kind(TypeError)
def masked(slot):
    return numpy_only(slot, lambda v: np.ma.array(v, mask=False))


@kind(RIGHT)
def a_numpy_subclass(slot):
    return numpy_only(slot, lambda v: v.view(type("Rows", (np.ndarray,), {})))


@kind(if_written(ValueError))
def read_only(slot):
    def freeze(value):
        value = value.view()
        value.flags.writeable = False
        return value

    return numpy_only(slot, freeze)


@kind(RIGHT)
def a_tensor_subclass(slot):
    return torch_only(slot, lambda v: v.as_subclass(type("Rows", (torch.Tensor,), {})))


@kind(if_written(ValueError))
def a_parameter(slot):
    return torch_only(slot, torch.nn.Parameter)


@kind(RIGHT)
def a_parameter_that_needs_no_gradient(slot):
    return torch_only(slot, lambda v: torch.nn.Parameter(v, requires_grad=False))


@kind(if_written(ValueError))
def a_tensor_of_inference_mode(slot):
    if slot.place == "numpy":
        return None
    with torch.inference_mode():
        return strided(slot, 8, slot.shape[-1])


@kind(TypeError)
def on_meta(slot):
    return on_the_cpu(slot, lambda v: v.to("meta"))


@kind(TypeError)
def sparse(slot):
    return on_the_cpu(slot, lambda v: v.to_sparse())


@kind(TypeError)
def lazily_negated(slot):
    return torch_only(slot, torch._neg_view)


@kind(TypeError)
def nested(slot):
    return on_the_cpu(slot, lambda v: torch.nested.nested_tensor([v, v]))


# --- calls --------------------------------------------------------------------------------------------------------------


def slots(op: str, dtype: str, lead: tuple[int, ...], place: str) -> dict[str, Slot]:
    """The tensors of a call, `out` among them where the operator has one."""
    operator = OPERATORS[op]
    found = {}
    for tensor in operator.tensors:
        vector = tensor.role is Role.VECTOR
        width = 2 * WIDTH if tensor.role.double else WIDTH
        found[tensor.name] = Slot(tensor.name, (width,) if vector else (*lead, width), dtype, tensor.written, vector, place)
    if operator.returns_out:
        found["out"] = Slot("out", (*lead, WIDTH), dtype, True, False, place)
    return found


def run(op: str, arguments: dict[str, Argument]) -> Any:
    operator = OPERATORS[op]
    return getattr(numba_kernels, op)(**{name: arguments[name].value for name in operator.arguments if name in arguments})


@cache
def _plain_bits(op: str, dtype: str, key: bytes, shapes: tuple) -> dict[str, np.ndarray]:
    words = np.frombuffer(key, np.uint16 if dtype != "fp32" else np.uint32)
    given, at = {}, 0
    for name, shape in shapes:
        size = int(np.prod(shape))
        given[name] = words[at : at + size].copy().view(DTYPES[dtype]).reshape(shape)
        at += size
    result = getattr(numba_kernels, op)(**given)
    wanted = {"out": result} if result is not None else {n: given[n] for n in OPERATORS[op].written}
    return {name: array.view(words.dtype) for name, array in wanted.items()}


def expected_bits(op: str, dtype: str, arguments: dict[str, Argument]) -> dict[str, np.ndarray]:
    """The bits of what the operator writes, from the same call on plain NumPy arrays."""
    inputs = {name: a for name, a in arguments.items() if name != "out"}
    key = b"".join(np.ascontiguousarray(a.bits()).tobytes() for a in inputs.values())
    return _plain_bits(op, dtype, key, tuple((name, a.places.shape) for name, a in inputs.items()))


def check(op: str, dtype: str, lead: tuple[int, ...], place: str, kinds: dict[str, str]) -> bool:
    """Makes the call with these kinds of arguments (plain where none is named). False where there is no such call."""
    found = slots(op, dtype, lead, place)
    arguments, outcomes = {}, {}
    for name, slot in found.items():
        each = KINDS[kinds.get(name, "plain")]
        made = each.make(slot)
        if made is None:
            return False
        arguments[name], outcomes[name] = made, each.outcome(slot)
    what = f"{op} {dtype} {lead} {place} {kinds}"
    wrong = {name: error for name, error in outcomes.items() if error is not RIGHT}
    if not wrong:
        want = expected_bits(op, dtype, arguments)
        returned = run(op, arguments)
        for name in OPERATORS[op].written:
            assert np.array_equal(arguments[name].bits(), want[name]), f"{what}: other bits in {name}"
        assert returned is arguments["out"].value if "out" in arguments else returned is None, what
    else:
        with pytest.raises(tuple(set(wrong.values()))) as caught:
            run(op, arguments)
        said = str(caught.value)
        blamed = {name for name in found if said.startswith(f"{name}: ")}
        # What doesn't fit a wrong input may be said of the other argument.
        assert blamed, f"{what}: {said}"
        assert blamed & set(wrong) or "input" in wrong, f"{what}: {said}"
    for name, argument in arguments.items():
        assert argument.untouched(found[name].written and not wrong), f"{what}: memory of {name}"
    return True


def singly(op: str) -> list[dict[str, str]]:
    """One kind at a time for each argument."""
    return [{name: each} for name in slots(op, "fp32", (3,), "numpy") for each in KINDS]


def in_pairs(op: str) -> list[dict[str, str]]:
    """Every pair of kinds of two arguments."""
    names = itertools.combinations(slots(op, "fp32", (3,), "numpy"), 2)
    return [{one: a, other: b} for one, other in names for a, b in itertools.product(KINDS, KINDS)]


OPS = list(OPERATORS)
ONE_PAIR_OF = 101  # tried with each dtype and place


def count_checked(op: str, dtype: str, place: str, every: int = 1) -> int:
    """How many calls were made: one kind at a time (every so manieth), and a part of the pairs."""
    calls = list(itertools.product(LEADS, singly(op)))[::every]
    calls += list(itertools.product(LEADS, in_pairs(op)))[:: every * ONE_PAIR_OF]
    return sum(check(op, dtype, lead, place, kinds) for lead, kinds in calls)


@pytest.mark.parametrize("place", ["numpy", "cpu"])
def test_every_kind_of_argument_can_be_made_and_most_say_no(place):
    made = {
        kind: slot
        for lead in LEADS
        for kind in KINDS
        for slot in slots("rmsnorm", "fp16", lead, place).values()
        if KINDS[kind].make(slot)
    }
    assert len(made) >= 27
    assert sum(KINDS[kind].outcome(slot) is RIGHT for kind, slot in made.items()) >= 5


@pytest.mark.parametrize("place", ["numpy", "cpu"])
@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "rmsnorm", "silu_and_mul"])
def test_an_argument_of_any_kind_gives_the_right_bits_or_an_error_that_names_it(op, place):
    assert count_checked(op, "bf16", place, 7) > 30


@pytest.mark.slow
@pytest.mark.parametrize("place", ["numpy", "cpu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_the_whole_matrix_of_arguments(op, dtype, place):
    assert count_checked(op, dtype, place) > 200


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["numpy", "cuda"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_the_whole_matrix_of_arguments_on_a_gpu(op, dtype, place):
    assert count_checked(op, dtype, place) > 150
