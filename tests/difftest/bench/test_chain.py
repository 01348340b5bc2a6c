"""The chain of a decoder layer, and the norm with a prefetch, with made-up providers and no GPU."""

import json
import re

import numpy as np
import pytest
import torch

from difftest.bench import chain, kernels, launch, prefetch
from difftest.bench.choices import choice
from difftest.bench.shapes import timed
from difftest.pages.forms import H200
from numba_kernels.backend.compile import assemble
from numba_kernels.emulator import EmulatedKernel
from numba_kernels.kernels.norms import make_norm_kernel
from tests.difftest.bench.made_up import FakeProvider, FakeTimer
from tests.difftest.bench.test_floor import buffer

CPU = torch.device("cpu")
SIZES = chain.Sizes(hidden=512, inner=224, layers=2)


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch):
    monkeypatch.setattr(chain, "ROUNDS", 2)


@pytest.fixture(scope="module")
def layers():
    return chain.weights(SIZES, CPU)


def setting(layers, timer=None, rows=2):
    return chain.setting(rows, SIZES, layers, timer or FakeTimer(), CPU)


def test_every_provider_runs_the_same_layers_and_is_held_to_plain_torch(layers):
    providers = [
        FakeProvider("numba"),
        FakeProvider("torch-compile", in_place=False),
        FakeProvider("other", code="R1W1"),
        FakeProvider("zero", fault="zero"),
        FakeProvider("raises", fault=RuntimeError("no memory")),
        FakeProvider("absent", refusal="is not installed"),
    ]
    found = chain.point(setting(layers), providers)
    rows = {row["name"]: row for row in found["results"]}
    assert [row["status"] for row in found["results"]] == ["ok", "ok", "ok", "ok", "wrong", "skipped", "skipped"]
    assert rows["numba"]["error"] == rows["torch-compile"]["error"] < 0.001 < rows["other"]["error"] < 0.03
    assert "from plain torch's" in rows["zero"]["reason"]
    assert rows["raises"]["reason"] == "RuntimeError: no memory"
    assert rows["absent"]["reason"] == "is not installed"
    assert rows["numba"]["us"]["median"] == 0.5  # a microsecond a launch, two layers
    json.dumps(found)


def test_x_keeps_its_size_through_the_layers(layers):
    truth = chain._truth(setting(layers, rows=16))
    assert 0.7 < float(truth.square().mean().sqrt()) < 1.4


class Drifting(FakeTimer):
    """Each graph takes a tenth longer than the one captured before it."""

    def capture(self, calls):
        captured = super().capture(calls)
        captured.number = sum(event[0] == "capture" for event in self.log)
        return captured

    def turn(self, captured, launches, refresh):
        return [1e-6 * 1.1**captured.number] * launches


def test_the_noise_is_what_the_two_graphs_of_one_provider_differ_by(layers):
    found = chain.point(setting(layers, Drifting()), [FakeProvider("numba")])
    assert found["noise"] == pytest.approx(0.1, rel=0.01)
    [_, ours] = found["results"]
    assert ours["graphs"][1] == pytest.approx(1.1 * ours["graphs"][0], rel=0.01)


def test_the_graphs_take_turns(layers):
    timer = FakeTimer()
    chain.point(setting(layers, timer), [FakeProvider("numba")])
    turns = [event for event in timer.log if event[0] == "turn"]
    assert len(turns) == 4 * chain.ROUNDS  # the products and the provider, two graphs each


def doing(norm):
    """`launch.launcher_of` with a made-up norm in the kernel's place."""

    def launcher_of(make, kernel, grid, constants, device, shared=0):
        rows, width = constants[3], constants[4]
        assert grid == (rows + H200.processors, 1, 1)
        assert len(constants) == 9 + 4

        def run(*addresses):
            x, residual, weight, out = addresses
            assert out == x
            shapes = ((rows, width), (rows, width), (width,))
            given = [
                buffer(at, np.prod(shape), "bf16").reshape(shape) for at, shape in zip((x, residual, weight), shapes, strict=True)
            ]
            norm(*(torch.from_numpy(each).view(torch.bfloat16) for each in given), constants[6])

        return run

    return launcher_of


def test_the_norm_with_a_prefetch_must_leave_our_bits(layers, monkeypatch):
    ours = FakeProvider("numba")
    monkeypatch.setattr(launch, "launcher_of", doing(ours.native(chain.NORM)))
    found = prefetch.point(setting(layers), [ours, FakeProvider("out", in_place=False)], H200)
    assert [row["status"] for row in found["results"]] == ["ok", "ok", "skipped", *["ok"] * 6]
    assert found["results"][2]["reason"] == "out's norm does not work in place"
    json.dumps(found)


@pytest.mark.slow
def test_the_kernel_with_a_prefetch_computes_what_ours_does():
    case = timed(chain.NORM, "bf16", 2, 1400, "cpu")
    plan, kernel = prefetch.plan_of(case), choice(case, H200)
    generator = np.random.default_rng(0)
    first = [generator.integers(0x3E00, 0x4000, size, np.uint16) for size in (2800, 2800, 1400)]
    left = []
    for make, spare, more in (
        (lambda k: make_norm_kernel(k.operation, k.config), 0, ()),
        (kernels.make_norm_with_prefetch, 3, (7, 5, 16, 16)),
    ):
        x, residual, weight = (each.copy() for each in first)
        grid = (plan.shape(kernel)[0][0] + spare, 1, 1)
        given = [x, residual, weight, x, *plan.arguments(())]
        ahead = [np.zeros(more[0], np.uint64), *more[1:]] if more else []
        EmulatedKernel(make(kernel), accepted=True).launch(grid, kernel.config.threads, [*given, *ahead])
        left.append(np.concatenate([x, residual]))
    assert np.array_equal(*left)
    assert not np.array_equal(left[0], np.concatenate(first[:2]))


def test_one_that_leaves_other_bits_is_wrong(layers, monkeypatch):
    monkeypatch.setattr(launch, "launcher_of", lambda *_: lambda *addresses: None)
    [*_, row] = prefetch.point(setting(layers), [FakeProvider("numba")], H200)["results"]
    assert (row["status"], row["reason"]) == ("wrong", "layers [0, 1] have other bits than without a prefetch")


def test_a_prefetch_stays_inside_the_weight():
    sizes = chain.Sizes()
    whole = 2 * sizes.inner * sizes.hidden * 2
    for each in prefetch.prefetches(sizes):
        assert (each.pieces - 1) * each.step + each.size <= whole
        assert each.size % 16 == each.step % 16 == 0


@pytest.mark.slow
def test_the_norm_with_a_prefetch_is_ours_and_one_instruction_more():
    kernel = choice(timed("fused_add_rmsnorm", "bf16", 16, 4096), H200)
    ptx = launch.compile_to_ptx(kernels.make_norm_with_prefetch, kernel, (9, 0))
    assert ptx.count("cp.async.bulk.prefetch.L2") == 3  # residual and weight while it waits, and the next weight
    assert ptx.count("ld.global.v4.u32") == 3
    code, report = assemble(ptx, (9, 0))
    assert code[:4] == b"\x7fELF"
    assert not re.search(r"[1-9]\d* bytes (stack frame|spill)", report)
