"""Blocks of our kernels beside their floor, in the chain of a decoder layer, and with a prefetch of the next weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest.bench import chain as measured
from difftest.bench import floor as bare
from difftest.bench import tables
from difftest.bench.shapes import OURS
from difftest.pages import sources
from difftest.pages.sources import CHAIN, FLOOR
from difftest.report.table import Entry, Styled, Table, markdown
from difftest.wording import counted


def floor(page: Path) -> str:
    """Microseconds of small calls beside the bare loads and stores and an empty kernel; of large ones, beside the former."""
    document = sources.latest(FLOOR)
    if not document or not document["points"]:
        return sources.not_yet(FLOOR)
    small = [point for point in document["points"] if any(row["kernel"] == bare.EMPTY for row in point["results"])]
    large = [point for point in document["points"] if point not in small]
    parts = []
    if small:
        rows = tuple(map(_small, small))
        parts.append(markdown(Table("", ("microseconds", "ours", bare.MOVED, bare.EMPTY, f"ours / {bare.MOVED}"), rows)))
    if large:
        form = "the fastest form of those"
        heads = ("microseconds", "ours", bare.MOVED, f"ours / {bare.MOVED}", "a copy", form)
        parts.append(markdown(Table("", heads, tuple(map(_large, large)), left=(form,))))
    remarks = [remark for point in document["points"] for remark in _remarks(_call(point), point["results"], "kernel")]
    return "\n".join([f"{tables.where(document)}.\n", *parts, *remarks])


def _call(point: Mapping[str, Any]) -> str:
    return f"{point['op']} {point['dtype']} {point['rows']} x {point['width']}"


def _small(point: Mapping[str, Any]) -> tuple[str, ...]:
    times = _medians(point["results"], "kernel")
    return (_call(point), *(_time(times, name) for name in (OURS, bare.MOVED, bare.EMPTY)), _ratio(times, bare.MOVED))


def _large(point: Mapping[str, Any]) -> tuple[str, ...]:
    times = _medians(point["results"], "kernel")
    moved = [name for name in times if name.startswith(bare.MOVED)]
    best = min(moved, key=times.__getitem__, default="")
    form = best.removeprefix(bare.MOVED).removeprefix(", ") or ("as the kernel" if best else "-")
    copy = tables.number(point["copy"]["us"]["median"]) if point["copy"] else "-"
    return _call(point), _time(times, OURS), _time(times, best), _ratio(times, best), copy, form


def _ratio(times: Mapping[str, float], other: str) -> str:
    return f"{times[OURS] / times[other]:.3f}" if OURS in times and other in times else "-"


def chain(page: Path) -> str:
    """Microseconds of a layer's half by provider, and how often a peer is faster by more than the noise."""
    document = sources.latest(CHAIN)
    if not document or not document["layers"]:
        return sources.not_yet(CHAIN)
    points = document["layers"]
    names = [
        name for name in dict.fromkeys(row["name"] for point in points for row in point["results"]) if name != measured.PRODUCTS
    ]
    rows, remarks, faster = [], [], 0
    for point in points:
        times = _medians(point["results"])
        remarks += _remarks(counted(point["rows"], "row"), point["results"])
        products, raced = times.pop(measured.PRODUCTS, None), {name: times[name] for name in names if name in times}
        peers = [us for name, us in raced.items() if name != OURS]
        ratio = raced[OURS] / min(peers) if OURS in raced and peers else None
        faster += ratio is not None and ratio > 1 + (point["noise"] or 0.0)
        beyond = raced[OURS] - products if OURS in raced and products is not None else None
        rows.append(
            (
                f"{point['rows']}",
                *tables.numbers(raced, names),
                tables.number(products) if products is not None else "-",
                tables.number(beyond) if beyond is not None else "-",
                f"{ratio:.3f}" if ratio is not None else "-",
                _share(point["noise"]),
            )
        )
    heads = ("rows", *names, measured.PRODUCTS, "ours beyond them", "ours / fastest peer", "noise")
    count = f"A peer is faster by more than the noise at {faster} of {len(rows)} numbers of rows.\n"
    return "\n".join([_where(document, points[0]), markdown(Table("", heads, tuple(rows))), count, *remarks])


def prefetch(page: Path) -> str:
    """Microseconds of a norm and the product after it, with each prefetch and without, and the best one beside the others."""
    document = sources.latest(CHAIN)
    if not document or not document["prefetch"]:
        return sources.not_yet(CHAIN)
    points = document["prefetch"]
    times = [_medians(point["results"]) for point in points]
    names = dict.fromkeys(row["name"] for point in points for row in point["results"])
    fastest = [min((name for name in each if name != measured.PRODUCTS), key=each.__getitem__, default=None) for each in times]
    rows: list[tuple[Entry, ...]] = []
    for name in names:
        entries = [_best(each, name, best) for each, best in zip(times, fastest, strict=True)]
        rows.append(("product alone" if name == measured.PRODUCTS else name, *entries))
    rows.append(("noise", *(_share(point["noise"]) for point in points)))
    heads = ("norm and product, microseconds", *(counted(point["rows"], "row") for point in points))
    said = [_said(point, each) for point, each in zip(points, times, strict=True)]
    remarks = [remark for point in points for remark in _remarks(counted(point["rows"], "row"), point["results"])]
    return "\n".join([_where(document, points[0]), markdown(Table("", heads, tuple(rows))), *filter(None, said), *remarks])


def _said(point: Mapping[str, Any], times: Mapping[str, float]) -> str:
    """The best prefetch beside our norm without one and beside the fastest peer's, in a sentence."""
    ahead = {name: us for name, us in times.items() if name.startswith(f"{OURS} ")}
    peers = {name: us for name, us in times.items() if name not in (OURS, measured.PRODUCTS, *ahead)}
    if not ahead or OURS not in times:
        return ""
    best = min(ahead.values())
    beside = [("ours without", times[OURS]), *((f"{name}'s", us) for name, us in peers.items())]
    ratios = ", ".join(f"{best / us:.3f} of the time after {what}" for what, us in beside)
    return f"At {counted(point['rows'], 'row')} the best prefetch takes {ratios}; noise {_share(point['noise'])}.\n"


def _where(document: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    sizes = f"{point['dtype']}, hidden {point['hidden']}, inner {point['inner']}, {point['layers']} layers in a graph"
    return f"{tables.where(dict(document))}; {sizes}, microseconds a layer.\n"


def _medians(rows: Sequence[Mapping[str, Any]], key: str = "name") -> dict[str, float]:
    """What was timed and right."""
    return {row[key]: row["us"]["median"] for row in rows if row["status"] == "ok"}


def _remarks(where: str, rows: Sequence[Mapping[str, Any]], key: str = "name") -> list[str]:
    """A sentence for each row without a time."""
    return [f"{where}: {row[key]} {row['status']}, {row['reason']}.\n" for row in rows if row["status"] != "ok"]


def _time(times: Mapping[str, float], name: str) -> str:
    return tables.number(times[name]) if name in times else "-"


def _best(times: Mapping[str, float], name: str, best: str | None) -> Entry:
    return Styled(_time(times, name), strong=True) if name == best else _time(times, name)


def _share(noise: float | None) -> str:
    return "-" if noise is None else f"{noise:.2%}"
