"""Where a run took place: versions, device, machine. Versions come from the packages' metadata."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable

import torch

PACKAGES = ("torch", "numba", "numba-cuda", "numpy", "ml_dtypes")


def version_of(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment(device: str, packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Name -> version or description, in the order in which it is shown."""
    device_name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()
    versions = {package: version_of(package) or "not installed" for package in packages}
    return {
        "device": f"{device} ({device_name})",
        "python": platform.python_version(),
        **versions,
        "system": platform.platform(),
    }


def one_line(found: dict[str, str]) -> str:
    """The environment in a line, short of the system."""
    return ", ".join(f"{name} {value}" for name, value in found.items() if name != "system")
