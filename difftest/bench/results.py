"""A result file read back: points, medians, ratios, means. Every number in a table or a README is computed here, from the file.

Ratios are times: ours over a peer's, so below 1 ours is the faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftest.bench.run import SCHEMA
from difftest.bench.shapes import OURS, timed
from difftest.cases.case import Case
from difftest.errors import UsageError
from difftest.report import jsonl

BEFORE = "numba-kernels/bench/1"  # had `versions` for `environment`
FEW_ROWS = 128  # a decode step's batch, where launch and latency count
MUCH = 128 * 2**20  # bytes moved, from which on memory is what counts
WIDE = 65536  # from this width on a row does not fit one block's registers


@dataclass(frozen=True, slots=True)
class Measured:
    """One point of a result file: times in microseconds and GB/s of those providers whose result was right."""

    case: Case
    bytes: int
    us: dict[str, float]
    gbps: dict[str, float]
    copy_gbps: float | None
    left_out: dict[str, str]  # provider -> "skipped: ..." or "wrong: ..."

    @property
    def shape(self) -> str:
        """`rows x width`."""
        return f"{self.case.rows} x {self.case.width}"

    @property
    def name(self) -> str:
        """Operator, dtype and shape."""
        return f"{self.case.op} {self.case.dtype} {self.shape}"

    @property
    def fastest_peer(self) -> str | None:
        """The fastest provider that is not ours; None without any."""
        peers = [name for name in self.us if name != OURS]
        return min(peers, key=self.us.__getitem__, default=None)

    def ratio(self, peer: str | None = None) -> float | None:
        """Our time over the peer's, the fastest one's unless named; None where either was not timed."""
        peer = peer or self.fastest_peer
        if peer is None or OURS not in self.us or peer not in self.us:
            return None
        return self.us[OURS] / self.us[peer]

    @property
    def share_of_copy(self) -> float | None:
        """Our GB/s over those of a copy of the same bytes in the same turns."""
        return self.gbps[OURS] / self.copy_gbps if OURS in self.gbps and self.copy_gbps else None


@dataclass(frozen=True, slots=True)
class Summary:
    """What a result file says in a few numbers; None where it holds nothing of the kind."""

    points: int
    compared: int  # points with a time of ours and of a peer
    fastest: int  # of them, those where no peer is faster
    mean: float | None
    mean_few_rows: float | None
    worst: tuple[float, Measured] | None
    shares_of_copy: tuple[tuple[float, Measured], ...]  # where MUCH moves
    shares_of_card: tuple[tuple[float, Measured], ...]
    wide_to_quack: tuple[tuple[float, Measured], ...]
    host: tuple[tuple[str, str, float], ...]  # operator, peer, our host time over the peer's
    wrong: tuple[tuple[str, Measured, str], ...]  # provider, point, reason


def load(path: Path) -> dict[str, Any]:
    """The document in a result file, of today's schema or the one before. UsageError, one line, where there is none."""
    document = jsonl.read("--summary", path, SCHEMA, "a result of `bench`", older=[BEFORE])
    if document["schema"] == BEFORE and "versions" in document:
        document["environment"] = document.pop("versions")
    return document


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several runs on one kind of card as one document: a point, or a host time, that two of them hold is the later file's.

    Everything else is the last document's, but for `dates`, which has each one's. UsageError for different cards, whose times
    say nothing about each other.
    """
    cards = {str((document.get("card") or {}).get("name")) for document in documents}
    if len(cards) > 1:
        raise UsageError(f"--summary: the files are from different cards: {', '.join(sorted(cards))}")
    found = {**documents[-1], "dates": [document.get("date", "") for document in documents]}
    for part in ("points", "host"):
        entries = {
            (entry["op"], entry["dtype"], entry["rows"], entry["width"]): entry
            for document in documents
            for entry in document[part]
        }
        found[part] = list(entries.values())
    return found


def measured(document: dict[str, Any]) -> list[Measured]:
    """The points of a document, in its order."""
    found = []
    for point in document["points"]:
        right = [row for row in point["results"] if row["status"] == "ok"]
        others = [row for row in point["results"] if row["status"] != "ok"]
        found.append(
            Measured(
                timed(point["op"], point["dtype"], point["rows"], point["width"]),
                point["bytes"],
                {row["provider"]: row["us"]["median"] for row in right},
                {row["provider"]: row["gbps"] for row in right},
                point["copy"]["gbps"] if point.get("copy") else None,
                {row["provider"]: f"{row['status']}: {row['reason']}" for row in others},
            )
        )
    return found


def summarise(document: dict[str, Any]) -> Summary:
    """The few numbers of a document."""
    points = measured(document)
    ratios = [(ratio, point) for point in points if (ratio := point.ratio()) is not None]
    much = [point for point in points if point.bytes >= MUCH]
    card = (document.get("card_copy") or {}).get("gbps")
    return Summary(
        points=len(points),
        compared=len(ratios),
        fastest=sum(ratio <= 1.0 for ratio, _ in ratios),
        mean=geometric_mean(ratio for ratio, _ in ratios),
        mean_few_rows=geometric_mean(ratio for ratio, point in ratios if point.case.rows <= FEW_ROWS),
        worst=max(ratios, key=lambda pair: pair[0], default=None),
        shares_of_copy=tuple((share, point) for point in much if (share := point.share_of_copy) is not None),
        shares_of_card=tuple((point.gbps[OURS] / card, point) for point in much if card and OURS in point.gbps),
        wide_to_quack=tuple(
            (ratio, point) for point in points if point.case.width >= WIDE and (ratio := point.ratio("quack")) is not None
        ),
        host=tuple(_host_ratios(document)),
        wrong=tuple(
            (name, point, reason.removeprefix("wrong: "))
            for point in points
            for name, reason in point.left_out.items()
            if reason.startswith("wrong: ")
        ),
    )


def host_times(document: dict[str, Any]) -> list[tuple[str, str, dict[str, float]]]:
    """(operator, `dtype rows x width`, provider -> median host microseconds) of each host measurement."""
    return [
        (
            entry["op"],
            f"{entry['dtype']} {entry['rows']} x {entry['width']}",
            {row["provider"]: row["us"]["median"] for row in entry["results"] if row["status"] == "ok"},
        )
        for entry in document["host"]
    ]


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """exp of the mean logarithm; None of nothing."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None


def providers(points: Sequence[Measured]) -> list[str]:
    """Every provider with a time, ours first, the others as the file has them."""
    names = dict.fromkeys(name for point in points for name in point.us)
    return [*([OURS] if OURS in names else []), *(name for name in names if name != OURS)]


def _host_ratios(document: dict[str, Any]) -> Iterable[tuple[str, str, float]]:
    for op, _, times in host_times(document):
        for peer in ("flashinfer", "triton"):
            if OURS in times and peer in times:
                yield op, peer, times[OURS] / times[peer]
