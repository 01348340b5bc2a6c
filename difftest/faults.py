"""A fault of the tester itself: kept as a report, said in one line, and no verdict."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

from difftest import system
from difftest.wording import in_a_line

FOLDER = Path("out/faults")


def report(error: BaseException) -> str:
    """Keeps how the error came about, with the command, in a file of its own; what to say of it in one line."""
    where = _kept(_text(error))
    report = f"its report is {where}" if where else "its report could not be kept"
    return f"a fault of the tester itself, {in_a_line(error)}; {report}"


def _text(error: BaseException) -> str:
    head = f"{' '.join(sys.argv)}\nPython {platform.python_version()}, {platform.platform()}\n\n"
    try:
        return head + "".join(traceback.format_exception(error))
    except Exception:
        return head + "".join(traceback.format_tb(error.__traceback__)) + in_a_line(error) + "\n"


def _kept(text: str) -> Path | None:
    """The file that holds the text: in the working directory's folder, else among temporary files, else nowhere."""
    for folder in (FOLDER, Path(tempfile.gettempdir())):
        try:
            system.make_folder(folder)
            with tempfile.NamedTemporaryFile(
                "w", dir=folder, prefix=time.strftime("%Y%m%d-%H%M%S-"), suffix=".txt", delete=False, errors="backslashreplace"
            ) as file:
                file.write(text)
            return Path(file.name)
        except OSError:
            continue
    return None
