"""Which tile counter a launch of a persistent kernel takes its rows from: one that no other launch uses at the same time.

Launches on one stream run one after another, so each stream has a counter. A captured launch runs whenever its graph is replayed,
beside whatever else is at work, so each has a counter of its own. None is given back, for a graph can be replayed as long as it
lives; when none is left, a kernel that is not persistent runs. What must not run side by side is one captured launch: in two
instances of its graph, or in two copies of it as a child graph. In place that would be a race anyway; with an output of its own,
one of the two could end before all rows are there.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

from cuda.bindings import driver

from ..kernels.config import TILE_COUNTERS
from .packing import check

PER_THREAD = 2  # the handle that means another stream in each thread
NOT_CAPTURING = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
_NUMBERS: dict[Hashable, int] = {}
_GIVING = threading.Lock()
_OF_THREAD = threading.local()


def counter_for(stream: int) -> int | None:
    """The number of the counter for a launch on the stream with this handle, of the current device; None if all are given out."""
    status, capturing = driver.cuStreamIsCapturing(driver.CUstream(stream))
    check(status)
    user: Hashable = stream
    if capturing != NOT_CAPTURING:
        user = object()
    elif stream == PER_THREAD:
        user = _OF_THREAD.__dict__.setdefault("user", object())
    number = _NUMBERS.get(user)
    if number is None:
        with _GIVING:
            number = _NUMBERS.setdefault(user, len(_NUMBERS)) if len(_NUMBERS) < TILE_COUNTERS else _NUMBERS.get(user)
    return number
