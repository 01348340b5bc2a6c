"""Implementations to compare, by name: `get`, `names`, `register`, and those that installed packages add.

A package adds its own through an entry point of group `numba_kernels.providers`: the entry's name is the provider's
name, its object a provider, or a callable without arguments that makes one. No optional library is imported here.
"""

from __future__ import annotations

from reference.providers.protocol import Provider, Refused, Unavailable
from reference.providers.registry import ENTRY_POINT_GROUP, broken_entry_points, get, known_elsewhere, names, register

__all__ = [
    "ENTRY_POINT_GROUP",
    "Provider",
    "Refused",
    "Unavailable",
    "broken_entry_points",
    "get",
    "known_elsewhere",
    "names",
    "register",
]
