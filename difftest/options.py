"""The command line's words turned into values, or into a one-line error that names the option and what it takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from difftest import lists
from difftest.errors import LackingError, UsageError, one_of, out_of_memory
from reference.contracts import Contract, contract

WIDEST = 2**30  # elements of a row, what the kernels take (`numba_kernels.runtime.arguments`)
LARGEST_SEED = 2**62  # torch's are 64-bit numbers
STRENGTHS = (0, 1, 2, 3)
MOST = 2**40  # for any other number: more rows than memory holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options of `difftest` as they were given: text for what takes a list, empty where it was not given."""

    ops: str
    dtypes: str
    widths: str
    rows: str
    regime_names: str
    candidate: str
    against: str
    contract: str
    eps: float
    device: str
    seed: int
    cases: int
    time_budget: float | None
    workers: int | None
    batch_invariant: bool
    strength: int
    in_process: bool = False
    call_timeout: float | None = None
    on: str = ""

    def check_numbers(self) -> None:
        """UsageError for a number that is out of range."""
        seed(self.seed)
        at_least("--cases", self.cases, 0)
        if self.strength not in STRENGTHS:
            raise one_of("--strength", str(self.strength), map(str, STRENGTHS))
        workers(self.workers)
        cluster(self.on)
        at_least("--time-budget", self.time_budget or 0.0, 0.0)
        if self.call_timeout is not None and not self.call_timeout > 0:
            raise UsageError(f"--call-timeout: {self.call_timeout} is not allowed; allowed: numbers above 0")


def names(option: str, text: str, allowed: Iterable[str]) -> list[str]:
    """A comma-separated list of names out of a closed list, without repeats."""
    known = list(allowed)
    found = words(option, text)
    for name in found:
        if name not in known:
            raise one_of(option, name, known)
    return found


def words(option: str, text: str) -> list[str]:
    """A comma-separated list, without repeats; UsageError when it is empty."""
    found = list(dict.fromkeys(word.strip() for word in lists.split(text) if word.strip()))
    if not found:
        raise UsageError(f"{option}: {text!r} names nothing")
    return found


def whole_numbers(option: str, text: str, least: int, most: int = MOST) -> list[int]:
    """A comma-separated list of whole numbers from `least` up, to `most`."""
    found = []
    for word in words(option, text):
        digits = word.lstrip("0") or "0"
        if not word.isdecimal() or (len(digits) <= len(str(most)) and int(digits) < least):
            raise UsageError(f"{option}: {word!r} is not allowed; allowed: whole numbers from {least} up, comma-separated")
        if len(digits) > len(str(most)) or int(digits) > most:
            raise UsageError(f"{option}: {word[:40]!r} is not allowed; the largest allowed is {most}")
        found.append(int(digits))
    return list(dict.fromkeys(found))


def widths(text: str) -> list[int]:
    """The widths of an output row that `--widths` names."""
    return whole_numbers("--widths", text, 1, WIDEST)


def memory_for(elements: int) -> None:
    """LackingError when the host can't hand out that many fp32 elements, before anything is run. Touches none of them."""
    try:
        torch.empty(min(elements, 2**60))  # more than this is no number to torch
    except RuntimeError as error:
        raise out_of_memory(error) or error from None


def at_least(option: str, value: float, least: float) -> None:
    """UsageError for a number below `least` (or for NaN)."""
    if not value >= least:
        raise UsageError(f"{option}: {value} is not allowed; allowed: numbers from {least} up")


def workers(value: int | None) -> None:
    """UsageError for a number of processes that is negative, or more than a machine of these cores has a use for."""
    at_least("--workers", value or 0, 0)
    most = max(16, 4 * (os.cpu_count() or 1))
    if (value or 0) > most:
        raise UsageError(f"--workers: {value} is not allowed; the largest allowed here is {most}, four a core")


def cluster(on: str) -> None:
    """UsageError for what names no cluster."""
    if on and on != "ray" and not on.startswith("ray://"):
        raise UsageError(f"--on: {on!r} is not allowed; allowed: ray, ray://ADDRESS")


def seed(value: int) -> None:
    """UsageError for a seed that is negative, or larger than a random generator takes."""
    at_least("--seed", value, 0)
    if value > LARGEST_SEED:
        raise UsageError(f"--seed: {value} is not allowed; the largest allowed is {LARGEST_SEED}")


def device(text: str) -> str:
    """`cpu` or `cuda:N` for auto, cpu, cuda or cuda:N. LackingError where the GPU asked for is not there."""
    kind, _, index = text.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdecimal())) or text.endswith(":"):
        raise one_of("--device", text, ("auto", "cpu", "cuda", "cuda:N"))
    available = torch.cuda.is_available()
    if kind == "cpu" or (kind == "auto" and not available):
        return "cpu"
    if not available:
        raise LackingError(f"--device: {text} was asked for, and torch {torch.__version__} sees no CUDA device")
    if index and int(index) >= torch.cuda.device_count():
        raise LackingError(f"--device: {text} was asked for, and there are {torch.cuda.device_count()} CUDA devices")
    return f"cuda:{index or torch.cuda.current_device()}"


def contracts(text: str, ops: Sequence[str], eps: float) -> tuple[dict[str, Contract], list[str]]:
    """Operator -> the contract that the one of the comma-separated spellings that it has means; and the operators that have none.

    UsageError for a spelling that no operator asked for has, for two that mean different contracts of one operator, and for
    an eps that is none.
    """
    try:
        defaults = {op: contract(op, eps=eps) for op in ops}
    except ValueError as error:
        raise UsageError(f"--eps: {error}") from None
    if not text:
        return defaults, []
    meant: dict[str, tuple[str, Contract]] = {}
    allowed: dict[str, None] = {}
    for spelling in words("--contract", text):
        takers = []
        for op in ops:
            try:
                found = contract(op, spelling, eps)
            except ValueError as error:
                allowed.update(dict.fromkeys(str(error).rpartition("known: ")[2].split(", ")))
                continue
            takers.append(op)
            first, other = meant.setdefault(op, (spelling, found))
            if other != found:
                raise UsageError(f"--contract: {first!r} and {spelling!r} are both for {op}; allowed: one an operator family")
        if not takers:
            raise one_of("--contract", spelling, allowed, what="contract of the operators asked for")
    return {op: meant[op][1] for op in ops if op in meant}, [op for op in ops if op not in meant]
