"""docs/emulator.md: its examples run, and it names every error that there is."""

import inspect
import re
import runpy
from pathlib import Path

import pytest

from numba_kernels import emulator

PAGE = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=["the missing barrier", "the schedule"])
def test_an_example_prints_what_its_comment_says(text, tmp_path, capsys):
    file = tmp_path / "example.py"  # the emulator reads a kernel's source from its file
    file.write_text(text)
    runpy.run_path(str(file))
    (said,) = re.findall(r"print\(.*\)  # (?:…, )?([^:\n]*\w+)", text)
    assert said in capsys.readouterr().out


def test_every_error_is_explained():
    errors = {name for name, value in vars(emulator).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert {name for name in errors if f"`{name}`" not in PAGE} - {"EmulatorError"} == set()
