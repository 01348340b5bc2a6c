"""Public functions and the command line, given anything: right, or an error of their own, with all memory unchanged."""

import os
import tempfile
import warnings
from pathlib import Path

import click
import ml_dtypes
import numpy as np
import torch
from click.testing import CliRunner
from hypothesis import strategies as st

import numba_kernels
from difftest import assert_conforms, cli, errors
from reference.operators import OPERATORS

from .fuzzing import TEXTS, fuzzed

FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]
DTYPES = [*FLOATS, np.float64, np.int16, np.uint16, np.bool_, np.complex64, ">f4", "O", "S2", "V2"]
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple) | st.sampled_from([(2, 3), (3,), (2, 6), (6,), (2, 3, 4)])


@st.composite
def arrays(draw):
    """An array of any kind: dtype, shape, layout, flags; NumPy's, torch's, masked, a scalar, a list, no array at all."""
    shape, dtype = draw(SHAPES), draw(st.sampled_from(FLOATS) | st.sampled_from(DTYPES))
    found = np.ones(shape, np.float32).astype(dtype)
    kind = draw(st.integers(0, 15))
    if kind == 0:
        found = np.asfortranarray(found)
    elif kind == 1 and shape:
        found = found[..., ::-1]
    elif kind == 2:
        found = np.broadcast_to(np.ones((), np.float32), shape)
    elif kind == 3:
        found.flags.writeable = False
    elif kind == 4:
        return np.ma.masked_array(found)
    elif kind == 5:
        return found.tolist()
    elif kind == 6:
        return draw(st.none() | st.integers() | st.text(max_size=3) | st.floats() | st.just(object()))
    elif kind == 7 and dtype in (np.float32, np.float16, np.int16):
        memory = np.zeros(found.nbytes + 1, np.uint8)
        found = memory[1:].view(dtype).reshape(shape)  # not aligned to its own size
    elif kind >= 10 and dtype in (np.float32, np.float16, np.float64, np.int16, np.bool_, np.complex64):
        tensor = torch.from_numpy(found)
        how = {10: lambda t: t.requires_grad_(t.is_floating_point()), 11: lambda t: t.to("meta"), 12: lambda t: t.bfloat16()}
        how |= {13: lambda t: t.to_sparse(), 14: lambda t: torch.nn.Parameter(t, requires_grad=False)}
        return how.get(kind, lambda t: t)(tensor)
    return found


def content(value):
    """The bytes of an argument, where it has some."""
    try:
        if isinstance(value, torch.Tensor):
            return value.detach().view(torch.uint8).numpy().tobytes() if value.device.type == "cpu" else None
        return value.tobytes() if isinstance(value, np.ndarray) and value.dtype != object else None
    except (RuntimeError, TypeError):  # a sparse one
        return None


NUMBERS = st.sampled_from([1e-6, 0, -1, 1e-46, 1e39, float("nan"), float("inf"), "1e-6", None, True, 1j, np.float32(1), 10**400])
CODES = st.sampled_from(["W0", "R0W0", "S0", "S1", "w0", "", None, 0, "X9", ["W0"]])
OPTIONS = {"eps": NUMBERS, "out": arrays(), "contract": CODES, "alpha": NUMBERS}
OPTIONS |= dict.fromkeys(("enable_pdl", "x"), st.sampled_from([None, True, 2, "x"]))


@fuzzed(
    st.sampled_from(list(OPERATORS)),
    st.lists(arrays(), min_size=1, max_size=4),
    st.lists(st.sampled_from(sorted(OPTIONS)), max_size=2, unique=True),
    st.data(),
    few=100,
)
def test_an_operator_takes_its_arguments_or_names_what_is_wrong(op, given, names, data):
    options = {name: data.draw(OPTIONS[name]) for name in names}
    kept = [content(value) for value in (*given, options.get("out"))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            getattr(numba_kernels, op)(*given, **options)
    except (TypeError, ValueError) as error:
        assert [content(value) for value in (*given, options.get("out"))] == kept, error  # noqa: PT017
        assert str(error)  # noqa: PT017


SMALL = {
    "difftest": "--candidate torch --ops rmsnorm --dtypes fp32 --widths 3 --rows 2 --regimes normal --cases 0 --strength 0 "
    "--device cpu --workers 0",
    "identify": "--candidate torch --op rmsnorm --widths 3 --device cpu --order no",
    "ledger": "--op rmsnorm",
    "exhaustive": f"--candidate torch --ops silu_and_mul --dtypes bf16 --share {2.0**-24} --device cpu",
    "mutants": "--only returns_zeros --workers 0 --time-budget 0",
    "replay": "",
    "bench": "--shapes 1x3",
}
# What a shell can hand over.
ODD = "-1 0 1 3 1.5 nan inf -inf 1e-46 1e400 0x3 ３ , -- - . / /dev/null /no/where flashinfer R0W0 x.py:f x.py : cuda auto S1 fp8"
WORDS = st.text(st.characters(exclude_categories=["Cs", "Nd"], exclude_characters="/\0"), max_size=8)
WORDS |= st.sampled_from([*ODD.split(), "1x", "x1", " ", "", "\udcff", "9" * 30])


@fuzzed(st.sampled_from(sorted(SMALL)), st.data(), few=20)
def test_a_command_takes_its_options_or_is_bad_usage(name, data):
    known = {option.opts[0]: option for option in cli.main.commands[name].params if isinstance(option, click.Option)}
    usual = iter(SMALL[name].split())
    words = dict(zip(usual, usual, strict=True))
    for option in data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=2, unique=True)):
        words[option] = None if known[option].is_flag else data.draw(WORDS)
    arguments = [data.draw(WORDS)] if name == "replay" else []
    flat = [name, *arguments, *(word for option, value in words.items() for word in (option, value) if word is not None)]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "here").mkdir()
        os.chdir(Path(folder) / "here")
        try:
            result = CliRunner().invoke(cli.main, flat)
            outside = [path.name for path in Path(folder).iterdir()]
        finally:
            os.chdir(here)
    assert result.exception is None or isinstance(result.exception, SystemExit), (flat, result.exception)
    assert result.exit_code in (0, 1, 2, 3), (flat, result.stderr)
    said = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert len(said) <= 1, (flat, said)
    assert said or result.exit_code != 3 or name == "mutants", flat  # whose report says that no kernel was run
    assert "Traceback" not in result.stderr, flat
    assert outside == ["here"], flat


def plain(input, weight, eps):
    """A right rmsnorm."""
    x = input.float()
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()).to(input.dtype)


NAMES = ("op", "dtypes", "widths", "rows", "regimes", "seed", "device", "against", "contract", "eps")
ANYTHING = st.none() | st.integers(-2, 3) | TEXTS | st.lists(st.integers(-1, 3), max_size=2) | st.just(object()) | st.floats()


@fuzzed(
    st.just(plain) | st.none() | TEXTS | st.integers(),
    st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=2),
    few=15,
)
def test_assert_conforms_takes_its_arguments_or_names_what_is_wrong(function, options):
    usual = {"op": "rmsnorm", "dtypes": "fp32", "widths": 3, "rows": 1, "regimes": "normal", "device": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            assert_conforms(function, **{"cases": 0, "strength": 0, "failures": folder, **usual, **options})
        except (AssertionError, errors.TesterError) as error:
            assert str(error)  # noqa: PT017
