"""`emulate`: a kernel of numba.cuda, or a program that launches some, on the CPU emulator."""

from __future__ import annotations

import linecache
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from difftest import errors
from numba_kernels import emulator

MAKERS = ("zeros", "ones", "full", "arange", "normal", "integers")
WANTED = f"a number, DTYPE:NUMBER, {', '.join(f'{name}:DTYPE:SHAPE' for name in MAKERS if name != 'full')}, or FILE.npy"


def emulate(
    what: str,
    grid: str | None,
    block: str | None,
    specs: tuple[str, ...],
    maker: str | None,
    check: str,
    schedules: int,
    seed: int,
    shared: int,
    same_value: str,
) -> int:
    """The exit status; what was found is on standard output."""
    file, _, name = what.partition(":") if not Path(what).exists() else (what, "", "")
    if not Path(file).is_file():
        raise errors.UsageError(f"{file}: no such file; wanted is FILE.py:KERNEL or FILE.py")
    if schedules < 1:
        raise errors.UsageError(f"--schedules: {schedules} is not a number from 1 on")
    try:
        if not name:
            return _program(file, (grid, block, *specs, maker), check, schedules, seed, same_value)
        with emulator.emulating(check=check):  # for the decorators
            names = runpy.run_path(file)
        kernel = _named(names, name, file)
        if grid is None or block is None:
            raise errors.UsageError(f"{what}: --grid and --block are needed for a kernel")
        if maker is not None and specs:
            raise errors.UsageError("--arg and --args: one of them, not both")
        args = tuple(_named(names, maker, file)()) if maker is not None else tuple(argument(s, k) for k, s in enumerate(specs))
        options: dict[str, Any] = {"check": check, "schedules": schedules, "seed": seed, "same_value": same_value}
        try:
            notes = emulator.emulate(
                kernel, extents("--grid", grid), extents("--block", block), args, dynamic_shared_bytes=shared, **options
            )
        except (ValueError, TypeError) as error:
            raise errors.UsageError(f"{what}: {error}") from error
    except emulator.EmulatorError as error:
        print(said(error))
        return errors.DIFFERS
    for note in notes:
        print(f"note: {note}")
    for k, value in enumerate(args):
        if isinstance(value, np.ndarray):
            print(f"argument {k}: {np.array2string(value, threshold=16, edgeitems=4)}")
    print(f"{what}: nothing found (check {check}, {schedules} schedule{'s' if schedules > 1 else ''})")
    return errors.CONFORMS


def _program(file: str, unused: tuple[Any, ...], check: str, schedules: int, seed: int, same_value: str) -> int:
    if any(unused):
        raise errors.UsageError(f"{file}: --grid, --block, --arg and --args are for FILE.py:KERNEL, not for a whole program")
    sys.argv = [file]
    for k in range(schedules):
        with emulator.emulating(check=check, schedule_seed=seed + k - 1 if k else None, same_value=same_value) as run:
            runpy.run_path(file, run_name="__main__")
        for note in dict.fromkeys(run.notes):
            print(f"note: {note}")
    print(f"{file}: nothing found in {run.launches} launches (check {check}, {schedules} schedule{'s' if schedules > 1 else ''})")
    return errors.CONFORMS


def _named(names: dict[str, Any], name: str, file: str) -> Any:
    if not callable(names.get(name)):
        functions = [n for n, value in names.items() if callable(value) and not n.startswith("_")]
        raise errors.one_of(file, name, functions, "function of it")
    return names[name]


def extents(option: str, text: str) -> tuple[int, ...]:
    """One to three sizes."""
    try:
        sizes = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        sizes = ()
    if not 1 <= len(sizes) <= 3:
        raise errors.UsageError(f"{option}: {text!r} is not one to three sizes, as 4 or 4,2,1")
    return sizes


def argument(spec: str, number: int) -> Any:
    """What a specification of a kernel's argument stands for; arrays are drawn with the argument's number as seed."""
    refusal = errors.UsageError(f"--arg: {spec!r} is not {WANTED}")
    if spec.endswith(".npy"):
        try:
            return np.load(spec)
        except (OSError, ValueError) as error:
            raise errors.UsageError(f"--arg: {spec}: {error}") from error
    first, *rest = spec.split(":")
    try:
        if not rest:
            return int(spec) if spec.lstrip("+-").isdigit() else float(spec)
        if first not in MAKERS:
            (value,) = rest
            return np.dtype(first).type(float(value) if np.dtype(first).kind == "f" else int(value))
        dtype, shape = np.dtype(rest[0]), tuple(int(n) for n in rest[1].split("x"))
        count = int(np.prod(shape))
        generator = np.random.default_rng(number)
        values = {
            "zeros": lambda: np.zeros(count),
            "ones": lambda: np.ones(count),
            "full": lambda: np.full(count, float(rest[2])),
            "arange": lambda: np.arange(count),
            "normal": lambda: generator.standard_normal(count),
            "integers": lambda: generator.integers(0, 100, count),
        }
        return values[first]().astype(dtype).reshape(shape)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise refusal from error


def said(error: emulator.EmulatorError) -> str:
    """An error in words, with the lines of source that it is about."""
    lines = [f"{type(error).__name__}: {error}"]
    for file, line in ((error.file, error.line), *error.others):
        source = linecache.getline(file, line).strip()
        if source:
            lines.append(f"    {Path(file).name}:{line}: {source}")
    if error.schedule_seed is not None:
        lines.append(f"    again: schedule_seed={error.schedule_seed}")
    return "\n".join(lines)
