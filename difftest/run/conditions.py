"""What the run took place on: card, driver, clocks as they were read, versions. Nothing is ever set.

Clocks are asked of `nvidia-smi` where there is one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import torch

from difftest.run.environment import PACKAGES, environment
from reference.providers import Provider

_QUERY = {
    "driver_version": "driver",
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "clocks.max.sm": "sm_most_mhz",
    "clocks.max.mem": "memory_most_mhz",
    "power.draw": "watts",
    "temperature.gpu": "celsius",
}


def head(schema: str, command: str, device: torch.device, providers: Iterable[Provider] = ()) -> dict[str, Any]:
    """What every result file of a GPU begins with."""
    return {
        "schema": schema,
        "date": now(),
        "command": command,
        "card": card(device),
        "environment": versions(str(device), providers),
        "clocks": clocks(device),
    }


def now() -> str:
    """The time, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def card(device: torch.device) -> dict[str, Any]:
    """Name and sizes of the card."""
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "cuda": torch.version.cuda,
    }


def clocks(device: torch.device) -> dict[str, str]:
    """Driver, clocks, power and temperature as nvidia-smi reads them now; empty without it."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    # nvidia-smi's own numbering ignores CUDA_VISIBLE_DEVICES, so by identity where torch knows it
    for which in (*([f"GPU-{uuid}"] if uuid else []), str(device.index or 0)):
        command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits", "-i", which]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            continue
        if answer:
            values = [value.strip() for value in answer.splitlines()[0].split(",")]
            return dict(zip(_QUERY.values(), values, strict=False))
    return {}


def versions(device: str, providers: Iterable[Provider]) -> dict[str, str]:
    """The environment, and each provider's version."""
    found = environment(device, PACKAGES)
    return {**found, **{f"provider {provider.name}": provider.version() for provider in providers}}
