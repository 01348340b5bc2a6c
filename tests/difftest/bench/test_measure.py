"""One point: who is timed, who is skipped, who is wrong; without a GPU."""

import pytest
import torch

from difftest.bench import host, measure
from difftest.bench.buffers import BufferSets, CopyPairs
from difftest.bench.shapes import timed

from .made_up import FakeProvider, FakeTimer

CPU = torch.device("cpu")
ADD = timed("fused_add_rmsnorm", "bf16", 4, 111)


def rows_of(result):
    return {row["provider"]: row for row in result["results"]}


def test_every_call_of_a_graph_has_buffers_of_its_own_with_the_same_first_values():
    sets = BufferSets(ADD, 3, CPU)
    sets.refresh()
    places = {t.data_ptr() for i in range(3) for name, t in sets.tensors(i).items() if name != "weight"}
    assert len(places) == 6
    assert all(t.is_contiguous() and t.shape == (4, 111) for t in (sets.tensors(2)["input"], sets.tensors(2)["residual"]))
    sets.tensors(1)["input"].zero_()
    assert torch.equal(sets.tensors(2)["input"], sets.first["input"])
    sets.refresh()
    assert torch.equal(sets.tensors(1)["input"], sets.first["input"])


def test_buffers_start_at_aligned_places_whatever_the_width():
    sets = BufferSets(timed("rmsnorm", "bf16", 3, 111), 4, CPU)
    base = sets.tensors(0)["input"].data_ptr()
    assert all((sets.tensors(i)["input"].data_ptr() - base) % 256 == 0 for i in range(4))


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm", "silu_and_mul", "gelu_and_mul"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_times_become_microseconds_bandwidth_and_a_share_of_the_copy(op, dtype):
    where = timed(op, dtype, 4, 111)
    providers = [FakeProvider("numba"), FakeProvider("peer", in_place=False)]
    timer = FakeTimer({"numba": 2.0, "peer": 3.0, "copy": 1.0})
    result = measure.point(where, providers, timer, CPU)
    ours, peer = result["results"]
    assert (ours["status"], peer["status"]) == ("ok", "ok")
    assert ours["us"] == {"median": 2.0, "p10": 2.0, "p90": 2.0, "samples": 15}
    assert ours["gbps"] == pytest.approx(where.moved / 2.0 / 1e3, abs=0.01)
    assert ours["share_of_copy"] == pytest.approx(0.5, abs=0.01)
    assert result["bytes"] == where.moved


def test_an_in_place_operator_never_runs_on_its_own_output():
    """Whoever ran on a buffer that holds a result would get another one, and the check after timing would see it."""
    timer = FakeTimer()
    result = measure.point(ADD, [FakeProvider("numba"), FakeProvider("other")], timer, CPU)
    assert all(row["status"] == "ok" and row["max_ulp"] == {"output": 0, "residual": 0} for row in result["results"])


def test_providers_and_the_copy_take_turns():
    timer = FakeTimer()
    measure.point(ADD, [FakeProvider("numba"), FakeProvider("a")], timer, CPU)
    order = [name for what, name, _ in timer.log if what == "turn"]
    assert len(order) == 4 * measure.ROUNDS
    assert order[:8] == ["numba", "a", "copy", "copy", "a", "copy", "copy", "numba"]
    assert [what for what, _, _ in timer.log].index("wake") == 4  # after everyone is captured


def test_the_yardstick_is_the_faster_way_to_copy():
    assert measure.fastest_copy({"memcpy": [3e-6, 2e-6, 9e-6], "kernel": [2.5e-6] * 3}, 10**6)["way"] == "kernel"
    found = measure.fastest_copy({"memcpy": [2e-6] * 3, "kernel": [2.5e-6] * 3}, 10**6)
    assert (found["way"], found["us"]["median"], found["gbps"]) == ("memcpy", 2.0, 500.0)
    assert measure.fastest_copy({}, 10**6) is None


@pytest.mark.parametrize("moved", [1, 222, 4096, 10**6 + 1])
def test_both_ways_to_copy_move_the_bytes_asked_for(moved):
    pairs = CopyPairs(moved, 2, CPU)
    assert moved <= pairs.moved < moved + 8
    for copies in pairs.ways.values():
        for copy in copies:
            assert copy().numel() * 8 == pairs.moved


def test_long_replays_are_fewer():
    timer = FakeTimer({"numba": 1e6})
    result = measure.point(ADD, [FakeProvider("numba")], timer, CPU)
    assert result["results"][0]["us"]["samples"] == measure.LAUNCHES + measure.ROUNDS - 1


@pytest.mark.parametrize("fault", ["zero", "lazy"])
def test_a_wrong_result_is_called_wrong(fault):
    result = measure.point(ADD, [FakeProvider("numba"), FakeProvider("bad", fault=fault)], FakeTimer(), CPU)
    bad = rows_of(result)["bad"]
    assert bad["status"] == "wrong"
    assert "ULP" in bad["reason"]
    assert "us" in bad


def test_each_provider_is_held_to_its_own_contract():
    providers = [FakeProvider("numba"), FakeProvider("hf", code="R1W1", in_place=False)]
    result = measure.point(timed("fused_add_rmsnorm", "bf16", 64, 512), providers, FakeTimer(), CPU)
    assert [row["contract"] for row in result["results"]] == ["R0W0", "R1W1"]
    assert all(row["max_ulp"]["output"] == 0 for row in result["results"])


def test_a_provider_that_fails_refuses_or_lacks_the_operator_is_skipped_with_the_reason():
    providers = [
        FakeProvider("numba"),
        FakeProvider("broken", fault=RuntimeError("operation not permitted\nwhen stream is capturing")),
        FakeProvider("narrow", refusal="no odd width"),
        FakeProvider("other", lacks=("fused_add_rmsnorm",)),
    ]
    rows = rows_of(measure.point(ADD, providers, FakeTimer(), CPU))
    assert rows["numba"]["status"] == "ok"
    assert rows["broken"]["reason"] == "RuntimeError: operation not permitted when stream is capturing"
    assert rows["narrow"]["reason"] == "no odd width"
    assert rows["other"]["reason"] == "other has no fused_add_rmsnorm"


def test_a_lost_device_ends_the_run_and_not_only_the_provider():
    timer = FakeTimer()
    timer.dead = "an illegal memory access was encountered"
    with pytest.raises(measure.DeviceLost, match="illegal memory access"):
        measure.point(ADD, [FakeProvider("broken", fault=RuntimeError("x"))], timer, CPU)


def test_the_hosts_time_is_that_of_the_call_alone(monkeypatch):
    monkeypatch.setattr(host, "LOOP", 3)
    monkeypatch.setattr(host, "_PUBLIC", {})
    providers = [FakeProvider("numba"), FakeProvider("broken", fault=RuntimeError("x"))]
    found = host.host(ADD, providers, FakeTimer(), CPU)
    rows = rows_of(found)
    assert rows["numba"]["us"]["samples"] == host.LOOPS
    assert 0 < rows["numba"]["us"]["best"] <= rows["numba"]["us"]["median"]
    assert rows["broken"]["status"] == "skipped"
