"""The half of a decoder layer that holds our kernels, as a model runs it: add and norm, a product, an activation, a product.

Several layers with weights of their own are captured in one CUDA graph, and launched over and over: nothing is flushed, so each
call finds in the L2 what its predecessors left there. The products are `F.linear`, cuBLAS through torch, the same for all. Each
provider's layers are captured twice, and the second graph takes its turns as if it were another's: what the two differ by is the
noise that a difference between providers has to exceed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from difftest.bench import measure
from difftest.bench.measure import Entry
from difftest.bench.shapes import timed
from difftest.bench.timer import Timer
from difftest.cases.case import Case
from reference.formats import FORMATS
from reference.operators.declaration import DEFAULT_EPS
from reference.providers import Provider, Refused

SCHEMA = "numba-kernels/chain/1"
PARTS = ("layers", "prefetch")
NORM, ACTIVATION = "fused_add_rmsnorm", "silu_and_mul"
PEERS = ("flashinfer", "torch-compile", "triton")
PRODUCTS = "products alone"
ROWS = (1, 16, 128)
ROUNDS = 30  # of three launches: 90 samples of each graph
# ‖x − x'‖ / ‖x'‖ of the last layer's x beside plain torch's. bf16 roundings that fall otherwise make some 2^-8 a layer; what
# computes something else is about 1 away.
MOST_ERROR = 0.05

State = tuple[torch.Tensor, torch.Tensor]  # x and residual
Make = Callable[[State], Callable[[], Any]]  # from a graph's own buffers to the call that is captured


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a layer, and how many there are: Llama 3 8B's, and 1.4 GB of weights, many times any L2."""

    hidden: int = 4096
    inner: int = 14336
    layers: int = 4
    dtype: str = "bf16"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's weights: (hidden,), (2 * inner, hidden), (hidden, inner)."""

    norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class Setting:
    """Where graphs are timed: the first values of x and residual, the weights, and the clock."""

    rows: int
    sizes: Sizes
    weights: Sequence[Layer]
    first: State
    timer: Timer
    device: torch.device

    def buffers(self) -> tuple[State, Callable[[], None]]:
        """Fresh buffers for one graph, and what gives them their first values."""
        mine = (torch.empty_like(self.first[0]), torch.empty_like(self.first[1]))

        def refresh() -> None:
            for buffer, values in zip(mine, self.first, strict=True):
                buffer.copy_(values)

        return mine, refresh

    def case(self, op: str) -> Case:
        """The layer's call of an operator."""
        width = self.sizes.hidden if op == NORM else self.sizes.inner
        return timed(op, self.sizes.dtype, self.rows, width, str(self.device))


class Normal:
    """Unit normal values, drawn on the device one tensor after another."""

    def __init__(self, device: torch.device, dtype: str, seed: int) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device, self._dtype = device, FORMATS[dtype].torch

    def __call__(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device).normal_(generator=self._generator)


def weights(sizes: Sizes, device: torch.device) -> list[Layer]:
    """Every layer's, such that x keeps about the size of a unit normal row."""
    draw, made = Normal(device, sizes.dtype, 0), []
    for _ in range(sizes.layers):
        norm = 1 + 0.1 * draw(sizes.hidden)
        gate_up = draw(2 * sizes.inner, sizes.hidden).mul_(sizes.hidden**-0.5)
        made.append(Layer(norm, gate_up, draw(sizes.hidden, sizes.inner).mul_(1.7 * sizes.inner**-0.5)))
    return made


def setting(rows: int, sizes: Sizes, layers: Sequence[Layer], timer: Timer, device: torch.device) -> Setting:
    """The setting for so many rows."""
    draw = Normal(device, sizes.dtype, 1)
    return Setting(rows, sizes, layers, (draw(rows, sizes.hidden), draw(rows, sizes.hidden)), timer, device)


# --- the layers -----------------------------------------------------------------------------------------------------------


def point(where: Setting, providers: Sequence[Provider]) -> dict[str, Any]:
    """Microseconds a layer: of the products alone, then of each provider's layers. A provider's failure becomes its row."""
    found: dict[str, Entered] = {PRODUCTS: twice(PRODUCTS, where, lambda: _products(where))}
    for provider in providers:
        found[provider.name] = twice(provider.name, where, partial(_layers, provider, where))
    rows = time_all(found, where)
    truth = _truth(where)
    for row in rows[1:]:
        entered = found[row["name"]]
        if not isinstance(entered, str):
            row |= _checked(entered[0], where, truth)
    return {**head(where), "noise": noise(rows), "results": rows}


def native(provider: Provider, op: str, where: Setting) -> Callable[..., Any]:
    """The provider's own form of a layer's operator. Refused where it can't run here."""
    refusal = provider.check(where.case(op))
    if refusal:
        raise Refused(refusal)
    return provider.native(op)


def _layers(provider: Provider, where: Setting) -> Make:
    norm, activation = native(provider, NORM, where), native(provider, ACTIVATION, where)
    return lambda state: partial(_run_layers, norm, activation, where.weights, *state)


def _run_layers(
    norm: Callable[..., State],
    activation: Callable[..., torch.Tensor],
    layers: Sequence[Layer],
    x: torch.Tensor,
    residual: torch.Tensor,
) -> State:
    for layer in layers:
        x, residual = norm(x, residual, layer.norm, DEFAULT_EPS)
        x = F.linear(activation(F.linear(x, layer.gate_up)), layer.down)
    return x, residual


def _products(where: Setting) -> Make:
    """The layers' products, with nothing between them."""
    inner = where.first[0].new_empty(where.rows, where.sizes.inner).normal_()

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.linear(*each) for layer in where.weights for each in ((x, layer.gate_up), (inner, layer.down))]

    return lambda state: partial(run, state[0])


def _truth(where: Setting) -> torch.Tensor:
    """x after all layers by plain torch: fp32 with one rounding, and everyone's products."""

    def norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> State:
        h = x.float() + residual.float()
        return (h * (h.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.float()).to(x.dtype), h.to(x.dtype)

    def activation(x: torch.Tensor) -> torch.Tensor:
        gate, up = x.float().chunk(2, -1)
        return (F.silu(gate) * up).to(x.dtype)

    return _run_layers(norm, activation, where.weights, *where.first)[0].float()


def _checked(entry: Entry, where: Setting, truth: torch.Tensor) -> dict[str, Any]:
    """How far the last layer's x is from plain torch's, from the first values on; `wrong` where that is too far."""
    where.timer.launch(entry.captured, entry.refresh)
    error = float((entry.captured.outputs[0][0].float() - truth).norm() / truth.norm())
    if error <= MOST_ERROR:  # not so for a NaN
        return {"error": round(error, 5)}
    return {"status": "wrong", "reason": f"x is {error:.3g} of its length from plain torch's, {MOST_ERROR} at most"}


# --- graphs, each captured twice ------------------------------------------------------------------------------------------

Entered = list[Entry] | str  # both graphs of an entrant, or why it has none


def twice(name: str, where: Setting, make: Callable[[], Make]) -> Entered:
    """Two graphs of one entrant, each on buffers of its own; or the reason why not. DeviceLost where all is lost."""
    start = time.perf_counter()
    try:
        made, entries = make(), []
        for _ in range(2):
            state, refresh = where.buffers()
            refresh()
            call = made(state)
            where.timer.warm([call])
            refresh()
            entries.append(Entry(name, where.timer.capture([call]), refresh, time.perf_counter() - start))
        return entries
    except Refused as refusal:
        return str(refusal)
    except Exception as error:  # a foreign library may raise anything; one entrant's failure is not the run's
        reason = measure.first_line(error)
    measure.raise_if_lost(where.timer, f"{where.rows} rows: after {name} failed with {reason}")
    gc.collect()
    where.timer.release()
    return reason


def time_all(found: Mapping[str, Entered], where: Setting) -> list[dict[str, Any]]:
    """A row for each entrant: microseconds a layer over both graphs, and the median of each."""
    graphs = [entry for entered in found.values() if not isinstance(entered, str) for entry in entered]
    for number, entry in enumerate(graphs):
        entry.name = f"{entry.name} {number}"  # turns are by name
    measure.take_turns(graphs, len(where.weights), where.timer, ROUNDS)
    rows: list[dict[str, Any]] = []
    for name, entered in found.items():
        if isinstance(entered, str):
            rows.append({"name": name, "status": "skipped", "reason": entered})
            continue
        times = measure.timing([sample for entry in entered for sample in entry.samples], 0)["us"]
        each = [round(1e6 * statistics.median(entry.samples), 4) for entry in entered]
        prepared = round(sum(entry.seconds for entry in entered), 3)
        rows.append({"name": name, "status": "ok", "us": times, "graphs": each, "seconds_to_prepare": prepared})
    return rows


def noise(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """How much slower than its twin a graph was at most, as a share; None where no entrant was timed."""
    shares = [max(row["graphs"]) / min(row["graphs"]) - 1 for row in rows if row["status"] != "skipped"]
    return round(max(shares), 5) if shares else None


def head(where: Setting) -> dict[str, Any]:
    """What names a measurement of so many rows."""
    sizes = where.sizes
    return {"rows": where.rows, "hidden": sizes.hidden, "inner": sizes.inner, "layers": sizes.layers, "dtype": sizes.dtype}
