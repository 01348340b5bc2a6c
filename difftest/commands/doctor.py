"""What is installed and usable here: versions, the GPU, each provider and why one can't be used."""

from __future__ import annotations

import platform
import re

import torch
from rich.markup import escape
from rich.table import Table

from difftest import errors
from difftest.providers import resolve  # noqa: F401  (registers the kernels as a provider)
from difftest.report.terminal import console
from difftest.run.environment import PACKAGES, version_of
from reference import providers
from reference.operators import OPERATORS

OPTIONAL = ("jinja2", "matplotlib", "cuda-core", "cuda-bindings")


def doctor() -> int:
    """Prints the tables. Returns 0 when the kernels can run on some device here, else 3."""
    screen = console()
    screen.print(f"Python {platform.python_version()}, {platform.platform()}")
    table = Table(header_style="bold")
    table.add_column("package")
    table.add_column("version")
    table.add_column("remark")
    for package in (*PACKAGES, *OPTIONAL):
        found = version_of(package)
        table.add_row(package, found or "-", _remark(package, found))
    screen.print(table)

    cuda = torch.cuda.is_available()
    if cuda:
        for index in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(index)
            screen.print(f"cuda:{index}: {torch.cuda.get_device_name(index)}, compute capability {major}.{minor}")
    else:
        screen.print("No GPU: torch sees no CUDA device. The kernels run on the CPU replay.")

    devices = [torch.device("cpu"), *([torch.device("cuda")] if cuda else [])]
    table = Table(header_style="bold")
    for name in ("provider", "version", "operators", *(d.type for d in devices)):
        table.add_column(name)
    for name in providers.names():
        provider = _get(name)
        if isinstance(provider, str):
            table.add_row(name, "-", "-", *[f"[red]{escape(provider)}[/]"] * len(devices))
            continue
        has = [op for op in OPERATORS if provider.claims(op)]
        states = [provider.unavailable(device) for device in devices]
        shown = ["[green]usable[/]" if state is None else f"[yellow]{escape(state)}[/]" for state in states]
        table.add_row(name, provider.version(), f"{len(has)} of {len(OPERATORS)}", *shown)
    screen.print(table)

    kernels = providers.get("numba")
    usable = any(kernels.unavailable(device) is None for device in devices)
    return errors.CONFORMS if usable else errors.LACKING


def _get(name: str) -> providers.Provider | str:
    try:
        return providers.get(name)
    except ValueError as error:
        return str(error)


def _remark(package: str, version: str | None) -> str:
    if version is None:
        return "[red]needed[/]" if package in PACKAGES else "optional"
    if package == "numpy" and tuple(int(n) for n in re.findall(r"\d+", version)[:2]) >= (2, 5):
        return "[red]numba-cuda 0.30.4 breaks on NumPy 2.5 (np.row_stack is gone): pip install 'numpy<2.5'[/]"
    return ""
