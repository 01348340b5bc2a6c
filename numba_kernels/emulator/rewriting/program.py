"""What rewriting makes of a kernel, and the state that its passes share."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..environment import Kind
from ..errors import UnsupportedKernel

UNKNOWN = object()  # the value of an expression that is not a constant


class Location(NamedTuple):
    """A line of a function: the function's name, its file's path, the line (from 1)."""

    function: str
    file: str
    line: int


NOWHERE = Location("?", "?", 0)


class Site(NamedTuple):
    """One wait in the rewritten kernel. An inlined device function has sites of its own at each place it is called."""

    kind: Kind
    call: str  # as the source writes it: "cuda.syncthreads"
    location: Location


@dataclass
class Program:
    """A kernel, rewritten pass by pass; nothing in it is compiled but device functions.

    The result: ``function(__t, __env, *parameters, *device_arrays)``, a generator function when there are ``sites`` (numbered
    from 1), and its ``source``; ``device_arrays``, by name: those outside the kernel that it names, read as a launch finds them;
    ``locations``: what the numbers stand for that the code records; ``static_bytes`` of shared memory a block,
    ``local_bytes`` of local memory a thread; ``grain``: bytes of the smallest element in shared memory; ``spins``:
    it has loops that may spin, ``spins_store``: which write memory otherwise than by atomics; ``fences`` and
    ``syncs_grid``: it has such; ``asked_dtypes``: the parameters on whose dtypes it depends.

    What the passes share: ``full`` (reads and writes are checked) and ``tracked`` (the line that runs is recorded);
    ``namespace``, the globals of the rewritten code; ``captured``, those among them that stand for values from outside the
    kernel, by name; ``alone``, the names of device functions that are compiled by themselves; ``waiting``, which of them may
    wait; ``tag``, the end of every function's name; ``options``, how they are compiled.
    """

    name: str
    file: str
    line: int
    full: bool
    tracked: bool
    tag: str = ""
    function: Any = None
    source: str = ""
    device_arrays: dict[str, np.ndarray] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    locations: list[Location] = field(default_factory=lambda: [NOWHERE])
    static_bytes: int = 0
    local_bytes: int = 0
    grain: int = 16
    spins: bool = False
    fences: bool = False
    syncs_grid: bool = False
    spins_store: bool = False
    asked_dtypes: set[str] = field(default_factory=set)
    options: dict[str, Any] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    captured: dict[str, Any] = field(default_factory=dict)
    alone: dict[Any, str] = field(default_factory=dict)
    waiting: dict[Any, bool] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)  # of captured values, which live as long as the program
    _numbers: dict[Location, int] = field(default_factory=dict)
    _counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def refusal(self, reason: str, at: Location) -> UnsupportedKernel:
        where = "" if at.function == self.name else f" (in {at.function})"
        return UnsupportedKernel(reason + where, kernel=self.name, file=at.file, line=at.line)

    def fresh(self, hint: str = "v") -> str:
        """A name that nothing else has."""
        return f"__{hint}{next(self._counter)}"

    def name_of(self, value: Any, hint: str) -> str:
        """The name under which compiled code sees a captured value."""
        if id(value) not in self._names:
            name = self.fresh(f"{hint}_")
            self._names[id(value)] = name
            self.namespace[name] = self.captured[name] = value
        return self._names[id(value)]

    def parameter_of(self, value: Any, array: np.ndarray) -> str:
        """The parameter that a device array outside the kernel becomes."""
        if id(value) not in self._names:
            self._names[id(value)] = name = self.fresh("device_")
            self.device_arrays[name] = array
        return self._names[id(value)]

    def value(self, node: ast.AST) -> Any:
        """What a name of rewritten code captures, or UNKNOWN."""
        return self.captured.get(node.id, UNKNOWN) if isinstance(node, ast.Name) else UNKNOWN

    def number_of(self, location: Location) -> int:
        """The number that running code keeps while it is at a location."""
        if location not in self._numbers:
            self._numbers[location] = len(self.locations)
            self.locations.append(location)
        return self._numbers[location]

    def location_of(self, number: int) -> Location:
        return self.locations[number] if 0 <= number < len(self.locations) else NOWHERE
