"""Arithmetic on a made-up result file, and how it is shown."""

import json
import math

import pytest
from rich.console import Console

from difftest.bench import plots, results, tables
from difftest.errors import UsageError

from .made_up import document, point, row

MUCH = 128 * 2**20


def example():
    points = [
        point("fused_add_rmsnorm", "bf16", 1, 4096, 40_000, {"numba": 1.0, "flashinfer-cuda": 2.0, "triton": 4.0, "hf": None}),
        point("fused_add_rmsnorm", "bf16", 4096, 4096, MUCH, {"numba": 40.0, "flashinfer-cuda": 39.0, "quack": 38.0}),
        point("fused_add_rmsnorm", "bf16", 512, 262144, 8 * MUCH, {"numba": 300.0, "quack": 330.0, "triton": 400.0}),
        point("silu_and_mul", "bf16", 16, 14336, 1_400_000, {"triton": 2.0}),
    ]
    host = [
        {
            "op": "fused_add_rmsnorm",
            "dtype": "bf16",
            "rows": 1,
            "width": 4096,
            "results": [
                {"provider": name, "status": "ok", "us": {"best": us, "median": us, "samples": 9}}
                for name, us in (("numba", 5.0), ("flashinfer", 10.0), ("triton", 12.5))
            ],
        }
    ]
    return document(points, host)


def test_ratios_are_our_time_over_the_fastest_peers():
    one, two, three, four = results.measured(example())
    assert (one.fastest_peer, one.ratio()) == ("flashinfer-cuda", 0.5)
    assert (two.fastest_peer, two.ratio()) == ("quack", pytest.approx(40 / 38))
    assert three.ratio("quack") == pytest.approx(300 / 330)
    assert four.ratio() is None
    assert one.left_out == {"hf": "skipped: not here"}


def test_the_summarys_numbers():
    found = results.summarise(example())
    ratios = [0.5, 40 / 38, 300 / 330]
    assert (found.points, found.compared, found.fastest) == (4, 3, 2)
    assert found.mean == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert found.mean_few_rows == pytest.approx(0.5)
    assert found.worst[0] == pytest.approx(40 / 38)
    assert found.worst[1].case.rows == 4096
    shares = [share for share, _ in found.shares_of_copy]
    assert shares == [pytest.approx(MUCH / 40.0 / 1e3 / 4000.0), pytest.approx(8 * MUCH / 300.0 / 1e3 / 4000.0)]
    assert found.shares_of_card[0][0] == pytest.approx(MUCH / 40.0 / 1e3 / 4300.0)
    assert [(ratio, where.case.width) for ratio, where in found.wide_to_quack] == [(pytest.approx(300 / 330), 262144)]
    assert found.host == (("fused_add_rmsnorm", "flashinfer", 0.5), ("fused_add_rmsnorm", "triton", 0.4))
    assert found.wrong == ()


def test_a_wrong_peer_is_not_ranked_and_is_reported():
    made = example()
    made["points"][1]["results"][2] = row("quack", 1.0, "wrong", "call 0: output is not finite")
    found = results.summarise(made)
    assert found.worst[1].fastest_peer == "flashinfer-cuda"
    [(name, where, reason)] = found.wrong
    assert (name, where.case.rows, reason) == ("quack", 4096, "call 0: output is not finite")


def test_a_file_of_nothing_has_no_numbers():
    found = results.summarise(document([]))
    assert (found.mean, found.worst, found.host) == (None, None, ())
    assert tables.markdown(document([]))


def test_the_geometric_mean():
    assert results.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert results.geometric_mean([]) is None


def test_the_tables_show_every_point_and_mark_the_fastest():
    text = tables.markdown(example())
    assert "| 1 x 4096 | **1.00** | 2.00 | 4.00 | - | 0.500 | 40 | 1% |" in text
    assert "| our host time / flashinfer's, fused_add_rmsnorm | 0.50 |" in text
    assert "| the same, worst | 1.053 (fused_add_rmsnorm bf16 4096 x 4096, quack) |" in text
    screen = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    tables.show(screen, example())
    shown = screen.export_text()
    assert "512 x 262144" in shown
    assert "skipped hf (1 point): not here" in shown


def test_a_file_that_is_none_is_one_line(tmp_path):
    for text in ("", "[]", json.dumps({"schema": "numba-kernels/difftest/1"})):
        file = tmp_path / "x.json"
        file.write_text(text)
        with pytest.raises(UsageError, match="--summary"):
            results.load(file)
    with pytest.raises(UsageError, match="No such file"):
        results.load(tmp_path / "none.json")


def test_a_file_of_the_schema_before_is_read_and_one_of_another_is_a_line_that_names_it(tmp_path):
    made = example()
    old = {**made, "schema": "numba-kernels/bench/1", "versions": made["environment"]}
    del old["environment"]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(old))
    read = results.load(file)
    assert results.summarise(read) == results.summarise(made)
    assert tables.where(read) == tables.where(made)
    file.write_text(json.dumps({**made, "schema": "numba-kernels/bench/9"}))
    with pytest.raises(UsageError, match=r"not a result of `bench` \(numba-kernels/bench/2\); it is numba-kernels/bench/9"):
        results.load(file)


def test_the_plots_are_drawn_where_there_are_points_to_join(tmp_path):
    pytest.importorskip("matplotlib")
    written = plots.write(tmp_path, example())
    assert [path.name for path in written] == ["fused_add_rmsnorm-bf16-rows.svg", "fused_add_rmsnorm-bf16-width.svg"]
    assert all(path.read_text().lstrip().startswith("<?xml") for path in written)


def test_runs_in_parts_are_put_together_and_the_later_point_counts():
    first = document(
        [point("rmsnorm", "bf16", 1, 64, 1000, {"numba": 9.0}), point("rmsnorm", "bf16", 2, 64, 2000, {"numba": 2.0})]
    )
    second = document([point("rmsnorm", "bf16", 1, 64, 1000, {"numba": 1.0})], date="later")
    found = results.merged([first, second])
    assert [(p.case.rows, p.us["numba"]) for p in results.measured(found)] == [(1, 1.0), (2, 2.0)]
    assert found["date"] == "later"
    with pytest.raises(UsageError, match="different cards"):
        results.merged([first, document([], card={"name": "Another GPU"})])
