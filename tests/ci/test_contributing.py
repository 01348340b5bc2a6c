"""CONTRIBUTING.md against the code: what its lists name exists, the lists are whole, and following them works."""

import ast
import functools
import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGES = ("numba_kernels", "reference", "difftest")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def listed(section):
    """The files of a section's table, with the text of each row."""
    return dict(re.findall(r"^\| `([^`]+)` \| (.+?) \|$", SECTIONS[section], re.M))


def mentioned(section):
    """Every file that a section names, in its table or below it."""
    return set(re.findall(r"`([\w./]+\.(?:py|toml))`", SECTIONS[section]))


@functools.cache
def words_of_files():
    """file of the packages -> the words that stand in it as names or in strings of their own, docstrings left out."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
            words = found.setdefault(str(path.relative_to(ROOT)), set())
            for node in ast.walk(module):
                match node:
                    case ast.FunctionDef(name=text) | ast.ClassDef(name=text) | ast.Name(id=text):
                        words.add(text)
                    case ast.Constant(value=str(text)) if id(node) not in docstrings:
                        words.update(text.replace(",", " ").split())
    return found


def naming(*words):
    """The files that name one of these."""
    return {file for file, there in words_of_files().items() if there & set(words)}


def test_every_file_that_is_named_exists_and_holds_what_is_said_of_it():
    for section in SECTIONS:
        for file in mentioned(section) - {"reference/providers/NAME.py", "FILE.py"}:
            assert (ROOT / file).is_file(), f"{section}: {file}"
        for file, row in listed(section).items():
            text = (ROOT / file.replace("NAME", "liger")).read_text(encoding="utf-8")
            for table in re.findall(r"`(_?[A-Z][A-Z_]+)`", row):
                assert re.search(rf"^{table}\b.*=", text, re.M), f"{section}: {file} has no {table}"


CHOOSING = ("difftest/bench/", "difftest/cli.py", "difftest/pages/", "difftest/mutants/")  # what is timed, shown, or made wrong


@pytest.mark.parametrize("words", [("silu", "silu_and_mul"), ("gelu", "gelu_and_mul"), ("gelu_tanh", "gelu_tanh_and_mul")])
def test_an_operator_is_named_in_the_files_of_its_list_and_nowhere_else(words):
    claims = {file for file in naming(*words) if file.startswith("reference/providers/")}
    choices = {file for file in naming(*words) if file.startswith(CHOOSING)}
    choices |= {"difftest/identify/infer.py"} if "gelu" in words else set()  # a remark on gelu's two forms
    assert naming(*words) - claims - choices == set(listed("An operator"))


def test_a_provider_is_named_in_the_files_of_its_list_and_nowhere_else():
    files = {file.replace("NAME", "liger") for file in listed("A provider")}
    assert naming("liger", "Liger", "LIGER") == files | {
        "difftest/bench/shapes.py",
        "difftest/bench/plots.py",
        "difftest/mutants/published.py",  # what its tests allow
    }


@pytest.mark.parametrize("name", ["magnitudes", "square_overflow", "cancellation", "saturating_gates"])
def test_a_regime_is_named_in_the_file_of_its_list_and_nowhere_else(name):
    assert naming(name) == set(listed("A regime"))


def test_a_dtype_is_named_in_the_files_of_its_list_or_where_one_is_chosen():
    named = naming("bf16", "fp16")
    assert set(listed("A storage dtype")) <= named
    assert named == mentioned("A storage dtype")


def test_the_tables_of_dtypes_name_the_same():
    from numba_kernels import formats
    from numba_kernels.backend import conversions
    from reference.formats import FORMATS

    assert set(FORMATS) == set(formats.FORMATS) == set(conversions._CONVERSIONS)


def test_a_provider_made_up_from_the_list_conforms_and_is_named(monkeypatch, tmp_path):
    import cli
    import difftest.providers.resolve  # noqa: F401, registers this project's own, which is to outlive the test
    from reference.providers import registry
    from reference.providers.claim import Claim
    from reference.providers.library import LibraryProvider

    claims = (Claim("made_up", ("rmsnorm",), "W1", "nowhere"),)

    class MadeUp(LibraryProvider):
        name = library = "made_up"
        on_record = claims
        modules = ("torch",)
        distribution = "torch"
        needs_cuda = False

        def _native(self, op):
            def norm(input, weight, eps):
                x = input.float()
                normalised = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)).to(input.dtype)
                return (normalised * weight).to(input.dtype)

            return norm

    monkeypatch.setitem(registry._BUILT_IN, "made_up", MadeUp)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    asked = (
        "difftest --candidate made_up --ops rmsnorm --contract W1 --dtypes bf16 --widths 111 --cases 0 --device cpu --workers 0"
    )
    asked += " --in-process"  # it is known to this process alone
    result = CliRunner().invoke(cli.main, [*asked.split(), "--failures", str(tmp_path)])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(cli.main, ["identify", "--candidate", "made_up", "--op", "rmsnorm", "--device", "cpu"])
    assert result.output.splitlines()[-1].startswith("contract: W1")


def test_a_regime_made_up_from_the_list_is_run(monkeypatch, tmp_path):
    import cli
    from difftest.cases import regimes

    def alternating(d):
        return {role: d.sign() * d.uniform(1.0, 2.0) for role in d.roles}

    made_up = regimes.Regime("alternating", "made up", alternating)
    monkeypatch.setattr(regimes, "REGIMES", {**regimes.REGIMES, made_up.name: made_up})
    asked = "difftest --candidate torch-rmsnorm --ops rmsnorm --dtypes fp32 --widths 111 --cases 0 --device cpu --workers 0"
    words = [*asked.split(), "--regimes", "alternating", "--json", str(tmp_path / "found.json")]
    result = CliRunner().invoke(cli.main, [*words, "--failures", str(tmp_path)])
    assert result.exit_code == 0, result.output
    cases = json.loads((tmp_path / "found.json").read_text())["cases"]
    assert {case["regime"] for case in cases} == {"alternating"}
