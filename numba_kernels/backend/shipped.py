"""Machine code that comes with the package: a file for each operation and architecture, by ``python -m numba_kernels.build``.

A file is xz over one line of JSON (the digest of the sources, and each cubin's entry and bytes by its kernel's configuration) and
the cubins. Packed together they take a twentieth of their bytes, as the kernels of an operation have most code in common.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .compiled import PACKAGE, Compiled, sources

if TYPE_CHECKING:
    from ..kernels.config import Kernel, Operation

FOLDER = PACKAGE / "cubins"


def shipped(kernel: Kernel, cc: tuple[int, int]) -> Compiled | None:
    """What the package brings for a kernel, or None. Code for compute capability x.0 runs on every x.y."""
    for built_for in dict.fromkeys((cc, (cc[0], 0))):
        found = read(kernel.operation, built_for).get(repr(kernel.config))
        if found is not None:
            return found
    return None


def read(operation: Operation, cc: tuple[int, int]) -> dict[str, Compiled]:
    """An operation's machine code by ``repr(kernel.config)``; nothing where there is none, or a file that is damaged or was made
    from other sources."""
    try:
        packed = path_of(operation, cc).read_bytes()
    except OSError:
        return {}
    import lzma

    try:
        head, cubins = lzma.decompress(packed).split(b"\n", 1)
        contents = json.loads(head)
    except (lzma.LZMAError, ValueError):
        return {}
    if contents["sources"] != sources():
        return {}
    return {config: Compiled(cubins[begin:end], entry) for config, (entry, begin, end) in contents["kernels"].items()}


def write(operation: Operation, cc: tuple[int, int], codes: dict[str, Compiled]) -> Path:
    """Puts an operation's machine code where `read` finds it, in place of what was there. OSError where it can't be written."""
    import lzma

    kernels, cubins = {}, b""
    for config, code in sorted(codes.items()):
        kernels[config] = (code.entry, len(cubins), len(cubins) + len(code.cubin))
        cubins += code.cubin
    head = json.dumps({"sources": sources(), "kernels": kernels}).encode()
    path = path_of(operation, cc)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(lzma.compress(head + b"\n" + cubins))
    return part.replace(path)


def path_of(operation: Operation, cc: tuple[int, int]) -> Path:
    """The file of an operation, named after it."""
    return FOLDER / f"sm_{cc[0]}{cc[1]}" / f"{re.sub(r'[^A-Za-z0-9_]+', '-', repr(operation)).strip('-')}.xz"
