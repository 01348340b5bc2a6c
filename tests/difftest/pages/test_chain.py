"""The blocks of what benchmarks/floor.py and benchmarks/chain.py measured, from made-up result files."""

import pytest

from difftest.bench import chain as measured
from difftest.bench import floor as bare
from difftest.pages import chain, sources
from difftest.report import jsonl

PAGE = sources.ROOT / "docs" / "speed.md"
HEAD = {"date": "2026-12-02", "card": {"name": "H200"}}


def timed(name, us, key="name", **more):
    return {key: name, "status": "ok", "us": {"median": us}, **more}


def point(rows, noise, **times):
    sizes = {"rows": rows, "hidden": 4096, "inner": 14336, "layers": 4, "dtype": "bf16"}
    return {**sizes, "noise": noise, "results": [timed(name.replace("_", " "), us) for name, us in times.items()]}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "RESULTS", tmp_path)

    def write(module, **parts):
        jsonl.write(tmp_path / "made-up.jsonl", {"schema": module.SCHEMA, **HEAD, **parts}, module.PARTS)

    return write


def test_without_a_result_file_each_block_says_what_measures_it(write):
    assert chain.floor(PAGE).startswith("Not measured yet: `python benchmarks/floor.py ")
    assert chain.chain(PAGE) == chain.prefetch(PAGE)
    assert chain.chain(PAGE).startswith("Not measured yet: `python benchmarks/chain.py ")


def test_the_floor_of_small_calls_and_of_large_ones(write):
    call = {"op": "rmsnorm", "dtype": "bf16", "rows": 1, "width": 4096, "copy": None}
    small = [timed(name, us, "kernel") for name, us in (("numba", 1.5), (bare.EMPTY, 0.5), (bare.MOVED, 1.2))]
    large = [
        timed(name, us, "kernel") for name, us in (("numba", 100.0), (bare.MOVED, 101.0), (f"{bare.MOVED}, rows of 1024", 98.0))
    ]
    refused = {"kernel": f"{bare.MOVED}, rows of 16384", "status": "skipped", "reason": "no memory"}
    copy = {"us": {"median": 99.0}}
    write(bare, points=[{**call, "results": small}, {**call, "rows": 9, "copy": copy, "results": [*large, refused]}])
    text = chain.floor(PAGE)
    assert "| rmsnorm bf16 1 x 4096 | 1.50 | 1.20 | 0.50 | 1.250 |" in text
    assert "| rmsnorm bf16 9 x 4096 | 100.0 | 98.00 | 1.020 | 99.00 | rows of 1024 |" in text
    assert "rmsnorm bf16 9 x 4096: loads and stores, rows of 16384 skipped, no memory." in text


def test_a_peer_is_faster_only_by_more_than_the_noise(write):
    products = {"products_alone": 80.0}
    within = point(1, 0.02, **products, numba=86.0, flashinfer=85.0, triton=90.0)
    beyond = point(16, 0.005, **products, numba=86.0, flashinfer=85.0, triton=90.0)
    write(measured, layers=[within, beyond], prefetch=[])
    text = chain.chain(PAGE)
    assert "| 1 | 86.00 | **85.00** | 90.00 | 80.00 | 6.00 | 1.012 | 2.00% |" in text
    assert "A peer is faster by more than the noise at 1 of 2 numbers of rows." in text
    assert chain.prefetch(PAGE).startswith("Not measured yet")


def test_the_best_prefetch_stands_beside_our_norm_without_and_the_peers(write):
    found = point(1, 0.001, products_alone=50.0, numba=52.0, flashinfer=53.0)
    found["results"] += [
        timed("numba and 2 MiB, whole rows", 51.0),
        {"name": "numba and 8 MiB, whole rows", "status": "wrong", "reason": "other bits"},
    ]
    write(measured, layers=[], prefetch=[found])
    text = chain.prefetch(PAGE)
    assert "| product alone | 50.00 |" in text
    assert "| numba and 2 MiB, whole rows | **51.00** |" in text
    assert "At 1 row the best prefetch takes 0.981 of the time after ours without, 0.962 of the time after flashinfer's" in text
    assert "1 row: numba and 8 MiB, whole rows wrong, other bits." in text
