"""What is installed and usable here: versions, the GPU, each provider and why one can't be used."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.markup import escape

from difftest import errors
from difftest.cases.case import Case
from difftest.providers import resolve  # noqa: F401  (registers the kernels as a provider)
from difftest.report.table import Entry, Styled, Table, terminal
from difftest.report.terminal import console
from difftest.run.environment import PACKAGES, version_of
from difftest.wording import in_a_line
from reference import providers
from reference.contracts import contract
from reference.operators import OPERATORS

OPTIONAL = ("jinja2", "matplotlib", "cuda-core", "cuda-bindings")


def doctor() -> int:
    """Prints the tables. Returns 0 when the kernels can run on some device here, else 3."""
    screen = console()
    screen.print(f"Python {platform.python_version()}, {platform.platform()}")
    found = {package: version_of(package) for package in (*PACKAGES, *OPTIONAL)}
    packages = tuple((package, version or "-", _remark(package, version)) for package, version in found.items())
    _show(screen, ("package", "version", "remark"), packages)

    cuda = torch.cuda.is_available()
    if cuda:
        for index in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(index)
            screen.print(f"cuda:{index}: {torch.cuda.get_device_name(index)}, compute capability {major}.{minor}")
    else:
        screen.print("No GPU: torch sees no CUDA device. The kernels run on the CPU emulator.")

    devices = ["cpu", *(["cuda"] if cuda else [])]
    _show(screen, ("provider", "version", "operators", *devices), tuple(_row(name, devices) for name in providers.names()))
    reasons = {device: _why_not(providers.get("numba"), device) for device in devices}
    for device, reason in reasons.items():
        screen.print(f"[red]{device}: {escape(reason)}[/]" if reason else f"{device}: the kernels run", soft_wrap=True)
    if None in reasons.values():
        screen.print("The main job runs here: python cli.py difftest")
        return errors.CONFORMS
    screen.print("The main job can't run here.", style="red")
    return errors.LACKING


def _show(screen: Console, heads: tuple[str, ...], rows: tuple[tuple[Entry, ...], ...]) -> None:
    screen.print(terminal(Table("", heads, rows, left=heads)))


def _row(name: str, devices: Sequence[str]) -> tuple[Entry, ...]:
    provider = _get(name)
    if isinstance(provider, str):
        return name, "-", "-", *[Styled(provider, style="red")] * len(devices)
    has = [op for op in OPERATORS if provider.claims(op)]
    reasons = [_why_not(provider, device) for device in devices]
    states = [Styled(reason, style="yellow") if reason else Styled("usable", style="green") for reason in reasons]
    return name, provider.version(), f"{len(has)} of {len(OPERATORS)}", *states


def _why_not(provider: providers.Provider, device: str) -> str | None:
    """Why a usual call of the provider's first operator can't run on the device, or None."""
    op = next((op for op in OPERATORS if provider.claims(op)), None)
    if op is None:
        return "has no operator of ours"
    try:
        return provider.check(Case(op, "bf16", (1,), 4096, "normal", 0, contract(op), device=device))
    except Exception as error:  # a foreign library may fail in any way when it is asked
        return in_a_line(error)


def _get(name: str) -> providers.Provider | str:
    try:
        return providers.get(name)
    except ValueError as error:
        return str(error)


def _remark(package: str, version: str | None) -> Entry:
    if version is None:
        return Styled("needed", style="red") if package in PACKAGES else "optional"
    if package == "numpy" and tuple(int(n) for n in re.findall(r"\d+", version)[:2]) >= (2, 5):
        said = "numba-cuda 0.30.4 breaks on NumPy 2.5 (np.row_stack is gone): pip install 'numpy<2.5'"
        return Styled(said, style="red")
    return ""
