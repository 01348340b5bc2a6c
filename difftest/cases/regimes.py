"""Input regimes: families of input values, by name, each there to bring out one kind of fault.

Every regime is a function of a seed alone: values are drawn on the CPU and then moved, so a case has the same bits on
every device. A regime says what an operator must have for it to mean something; which regimes apply follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from difftest.cases import binades
from difftest.cases.draw import Draw
from difftest.cases.weights import USUAL, WEIGHTS
from reference.formats import Format, bits
from reference.operators import Operator
from reference.operators.declaration import RSTD

Values = dict[str, torch.Tensor]
Needs = Callable[[Operator], bool]


def anything(op: Operator) -> bool:
    """Every operator."""
    return True


def a_row_sum(op: Operator) -> bool:
    """Rows that are normalised by their mean square."""
    return op.made_of == RSTD


def two_addends(op: Operator) -> bool:
    """Rows that are added."""
    return "residual" in op.roles


def a_gate(op: Operator) -> bool:
    """A gate, which an activation takes."""
    return "gate" in op.roles


def a_switch(op: Operator) -> bool:
    """Values at which the formula changes its form."""
    return bool(op.switches)


@dataclass(frozen=True, slots=True)
class Regime:
    """A family of inputs. `why` says which fault it is there for; `values` fills every role, in float32; `needs` them.

    `numbers`: values of the operator's parameters that its cases are always called with, since the rows are made for them.
    `rows`, `weight_dtype`: of its wide cases in the grid on a CPU, at least so many rows; and the format of their vectors.
    """

    name: str
    why: str
    values: Callable[[Draw], Values]
    needs: Needs = anything
    numbers: Mapping[str, float] = field(default_factory=dict)
    rows: int = 0
    weight_dtype: str | None = None

    def numbers_of(self, op: Operator) -> dict[str, float]:
        """`numbers`, those of the parameters that `op` has."""
        return {p.name: self.numbers[p.name] for p in op.parameters if p.name in self.numbers}


def _normal(d: Draw) -> Values:
    return {role: d.normal() for role in d.roles}


def _zeros(d: Draw) -> Values:
    """Zeros of both signs: -0 is the sum only of two of them."""
    return {role: 0.0 * d.sign() for role in d.roles}


def _subnormal(d: Draw) -> Values:
    """Small multiples of the smallest subnormal, every third element a few times the smallest normal instead.

    `up` is unit normal: a product of two such values would be zero whatever the activation.
    """
    info = torch.finfo(d.dtype.torch)
    step = info.smallest_normal * info.eps  # the smallest subnormal: 2^-24 in fp16, 2^-133 in bf16, 2^-149 in fp32
    normal = torch.arange(d.width) % 3 == 0
    values = {}
    for role in d.roles:
        tiny = torch.randint(-40, 41, (d.rows, d.width), generator=d.generator).double() * step
        near = (d.sign() * d.uniform(1.0, 4.0)).double() * info.smallest_normal
        values[role] = d.normal() if role == "up" else torch.where(normal, near, tiny).float()
    return values


def _magnitudes(d: Draw) -> Values:
    return {role: d.sign() * torch.pow(10.0, d.uniform(-4.0, 4.0)) for role in d.roles}


def _small_mean_square(d: Draw) -> Values:
    """Rows scaled so that the mean square of the normalised sum is 2e-4 to 4e-4: eps then moves the result."""
    return _scaled(d, 2e-4, 4e-4)


def _eps_dominates(d: Draw) -> Values:
    """Rows scaled so that the mean square of the normalised sum is a twentieth to a half of the call's eps, 1e-6 for 0."""
    eps = d.contract.eps or 1e-6
    return _scaled(d, 0.05 * eps, 0.5 * eps)


def _scaled(d: Draw, low: float, high: float) -> Values:
    """Unit-normal rows, each scaled so that the mean square of the normalised sum is uniform from `low` to `high`."""
    values = _normal(d)
    total = torch.stack(tuple(values.values())).sum(0)
    target = low + (high - low) * torch.rand(d.rows, 1, generator=d.generator)
    scale = (target / total.square().mean(1, keepdim=True).clamp_min(1e-30)).sqrt()
    return {role: value * scale for role, value in values.items()}


def _huge(d: Draw) -> Values:
    """Every element 1e15 to 3e16 in both signs, the same sign and magnitude in every role: mean squares of 1e30 to 4e33, whose
    sums over any row stay finite in fp32. In fp16 a quarter to a half of the largest number.
    """
    low, high = (16384.0, 32752.0) if d.dtype.name == "fp16" else (1e15, 3e16)
    magnitude = d.sign() * low * (high / low) ** d.uniform(0.0, 1.0)
    return {role: magnitude * d.uniform(0.9, 1.0) for role in d.roles}


def _some_zeros(d: Draw) -> Values:
    """Unit normal with a third of the elements zeros, of both signs, the same elements in every role."""
    zero = torch.rand(d.rows, d.width, generator=d.generator) < 1 / 3
    return {role: torch.where(zero, 0.0 * d.sign(), d.normal()) for role in d.roles}


def _outliers(d: Draw) -> Values:
    """Unit normal with one channel in 64 (at least one) two hundred times larger, the same channels in every row."""
    channels = torch.randperm(d.width, generator=d.generator)[: max(1, d.width // 64)]
    scale = torch.ones(d.width)
    scale[channels] = 200.0
    return {role: d.normal() * scale for role in d.roles}


def _cancellation(d: Draw) -> Values:
    """The residual nearly cancels the input, so the sum keeps few of either's bits."""
    values = _normal(d)
    if "residual" in values:
        values["residual"] = -values["input"] * (1.0 + d.uniform(-0.01, 0.01))
    return values


# This row tells all four norm contracts apart in bf16 at eps 1e-6: the sum is inexact and every weight but one matters.
_CORNER_ROW = {
    "input": (-0.5625, -0.078125, -0.109375, -1.0),
    "residual": (4.25, 7.5, -6.5, 4.0),
    "weight": (1.484375, 1.078125, 1.375, 1.375),
}
# In fp16, 2^-11 is half a step of 1: the stored sum drops it, the fp32 sum keeps it.
_CORNER_ROW_FP16 = {"input": (1.0, 2.0), "residual": (2.0**-11, 0.0), "weight": (1.0, 1.0)}


def _rounding_row(d: Draw) -> Values:
    row = _CORNER_ROW_FP16 if d.dtype.name == "fp16" else _CORNER_ROW
    values = {role: d.tile(row[role]).repeat(d.rows, 1) for role in d.roles}
    return {**values, **{name: d.tile(row["weight"]) - d.op.weight_bias for name in d.op.vectors}}


def _square_overflow(d: Draw) -> Values:
    """Unit normal with elements of 256 to 1000: their squares pass fp16's 65504, their sums stay below it."""
    values = {}
    for role in d.roles:
        large = torch.rand(d.rows, d.width, generator=d.generator) < 0.25
        large[:, :1] = True
        values[role] = torch.where(large, d.sign() * d.uniform(256.0, 1000.0), d.normal())
        if d.rows:
            values[role][0, 0] = 256.0
    return values


def _range_limit(d: Draw) -> Values:
    """A quarter of the elements, the same in every role, at the end of the range. In fp16 sums and products pass it, which is
    Inf, not 65504; in bf16 and fp32 they are 1e5 to 1e15, beyond fp16's range, and their squares are still finite.
    """
    largest = torch.finfo(torch.float16).max
    far = torch.rand(d.rows, d.width, generator=d.generator) < 0.25
    values = {}
    for role in d.roles:
        limit = d.uniform(0.5, 1.0) * largest if d.dtype.name == "fp16" else 10.0 ** d.uniform(5.0, 15.0)
        values[role] = torch.where(far, d.sign() * limit, d.normal())
    return values


def _inf_nan(d: Draw) -> Values:
    """By row, in turn: a NaN, +Inf, -Inf, and no special value, at a random column of the first role, then the next. The
    weight of a row of 8 or more has an Inf and a NaN too.
    """
    values = _normal(d)
    for name in d.op.vectors if d.width >= 8 else ():
        weight = d.weight()
        columns = torch.randperm(d.width, generator=d.generator)[:2]
        weight[columns] = torch.tensor([float("inf"), float("nan")])
        values[name] = weight
    specials = (float("nan"), float("inf"), float("-inf"))
    for row in range(d.rows):
        if row % 4 < 3:
            column = int(torch.randint(0, d.width, (1,), generator=d.generator))
            values[d.roles[row // 4 % len(d.roles)]][row, column] = specials[row % 4]
    return values


def _saturating_gates(d: Draw) -> Values:
    """Gates of magnitude 8 to 100, both signs: exp overflows or vanishes, the activation is gate or almost 0."""
    return {"gate": d.sign() * d.uniform(8.0, 100.0), "up": d.normal()}


def _gate_sweep(d: Draw) -> Values:
    """Gates from -12 to 12 in equal steps over the whole tensor."""
    return {"gate": torch.linspace(-12.0, 12.0, d.rows * d.width).reshape(d.rows, d.width), "up": d.normal()}


def _switches(d: Draw) -> Values:
    """For each role that has them, in turn: the values at which the formula switches, one step to either side of each, Inf of
    both signs and NaN; and unit normal elements. Every pair of gate's and up's, where there are elements enough.
    """
    places = torch.arange(d.rows * d.width)
    at = d.op.switch_values(d.contract)
    values = {}
    for role in d.roles:
        values[role] = d.normal().flatten()
        special = torch.cat([_beside(point, d.dtype) for point in at.get(role, ())] + [torch.tensor(_SPECIAL)])
        turn = places % (len(special) + 1)  # the last is left as it was drawn
        special = torch.cat((special, torch.zeros(1)))
        values[role] = torch.where(turn < len(special) - 1, special[turn], values[role]).reshape(d.rows, d.width)
        places = places // len(special)
    return values


# Eight odd numbers whose mean square is 16: quarters of them have mean square 1, and 3/4 of an odd significand is a tie.
_QUARTERS = (7, 5, 5, 3, 3, 3, 1, 1)


def _ties(d: Draw) -> Values:
    """Results exactly between two storage values, in every order of the sum and every form that is exact where it can be.

    Norms: rows of a few bits whose mean square is a power of 4 (eps is 0), and weights with odd significands. Of rows that are
    added, every second is a storage value and half of its last place instead: a sum that is a tie. Gated: gates with odd
    significands, every second so large that its activation is the gate; `up` (and `up` plus 1) of a few bits.
    """
    if "gate" in d.roles:
        scale = torch.where(torch.arange(d.width) % 2 == 1, 32.0, 2.0 ** -torch.arange(d.width).remainder(5))
        up = torch.tensor((0.5, 1.5, 2.5, 0.25))[torch.randint(4, (d.rows, d.width), generator=d.generator)]
        return {"gate": _odd_significands(d, d.rows) * scale, "up": d.sign() * up}
    whole = d.width - d.width % len(_QUARTERS)
    quarters = torch.cat((d.tile(_QUARTERS)[:whole], torch.full((d.width - whole,), 4.0)))
    order = torch.rand(d.rows, d.width, generator=d.generator).argsort(-1)
    scale = torch.exp2(torch.randint(-4, 5, (d.rows, 1), generator=d.generator).float() - 2.0)
    rows = d.sign() * quarters[order] * scale
    weights = {name: _odd_significands(d, 1)[0] - d.op.weight_bias for name in d.op.vectors}
    if "residual" not in d.roles:
        return {"input": rows, **weights}
    stored = d.sign() * _odd_significands(d, d.rows)
    half = d.sign() * 2.0 ** -(d.dtype.fraction_bits + 1)
    exact = (torch.arange(d.rows) % 2 == 0)[:, None]
    return {"input": torch.where(exact, 1.5 * rows, stored), "residual": torch.where(exact, -0.5 * rows, half), **weights}


def _odd_significands(d: Draw, rows: int) -> torch.Tensor:
    """rows x width of numbers in [1, 4/3) that the storage format just holds: 3/2 and 3/4 of each lie halfway."""
    steps = 2**d.dtype.fraction_bits
    odd = 2 * torch.randint(0, steps // 6, (rows, d.width), generator=d.generator) + 1
    return 1.0 + odd.double().div(steps).float()


def _near_ties(d: Draw) -> Values:
    """Normal rows, each of its own size, and a weight that puts results next to a tie, if it is fp32: each column's product of
    one row, in turn, lies within 24 * 2^-24 of halfway between two storage values. So each row's results tell its rstd
    to a step or two of fp32.
    """
    scale = 2.0 ** (4.0 * torch.rand(d.rows, 1, generator=d.generator) - 2.0)
    values = {role: (scale * d.normal()).to(d.dtype.torch).float() for role in d.roles}
    total = torch.stack(tuple(values.values())).sum(0)
    rows = (total.to(d.dtype.torch) if d.contract.rounds_sum else total).double()
    normalised = rows * (rows.square().mean(-1, keepdim=True) + d.contract.eps).rsqrt()
    columns = torch.arange(d.width)
    mine = normalised[columns % d.rows, columns] if d.rows else torch.ones(d.width, dtype=torch.float64)
    mine = torch.where(mine == 0, 1.0, mine)
    product = (mine * (0.5 + 1.5 * torch.rand(d.width, generator=d.generator))).abs()
    step = 2.0 ** (torch.frexp(product).exponent - d.dtype.fraction_bits - 1)
    tie = (torch.floor(product / step) + 0.5) * step
    beside = 1.0 + 24 * 2.0**-24 * (2.0 * torch.rand(d.width, generator=d.generator).double() - 1.0)
    weight = tie * beside / mine - d.op.weight_bias
    return {**values, **dict.fromkeys(d.op.vectors, weight.float())}


_SPECIAL = (float("inf"), float("-inf"), float("nan"))


def _beside(point: float, dtype: Format) -> torch.Tensor:
    """The storage value nearest to `point`, and its neighbours on both sides, float32."""
    nearest = torch.tensor([point]).to(dtype.torch)
    pattern = bits(nearest)
    if not nearest.any():
        away = torch.tensor([1], dtype=dtype.bits).view(dtype.torch)
        return torch.cat((-away, nearest, away)).float()
    return torch.cat(((pattern - 1).view(dtype.torch), nearest, (pattern + 1).view(dtype.torch))).float()


EVERY_BINADE = "binades"  # what a search sweeps the widths with

REGIMES: Mapping[str, Regime] = MappingProxyType(
    {
        r.name: r
        for r in (
            Regime("normal", "unit normal", _normal),
            Regime("some_zeros", "zeros of both signs among numbers: what becomes of -0", _some_zeros),
            Regime("zeros", "the mean square is 0: only eps is under the root", _zeros),
            Regime("subnormal", "values that flush to zero, squares that underflow", _subnormal),
            Regime("magnitudes", "both signs, 1e-4 to 1e4: one element may decide the row", _magnitudes),
            Regime("small_mean_square", "mean square 2e-4 to 4e-4: a wrong eps shows", _small_mean_square, a_row_sum),
            Regime("eps_dominates", "eps is most of what is under the root: an ignored one shows", _eps_dominates, a_row_sum),
            Regime("outliers", "outlier channels, as in real activations", _outliers),
            Regime("cancellation", "a sum that keeps few bits: which sum is normalised shows", _cancellation, two_addends),
            Regime("rounding_row", "the row that tells the rounding contracts apart", _rounding_row, a_row_sum),
            Regime("square_overflow", "squares beyond fp16's range: sums must be fp32", _square_overflow),
            Regime("range_limit", "fp16 overflows to Inf; other dtypes go beyond fp16's range", _range_limit),
            Regime(EVERY_BINADE, "every binade of the storage format", binades.values),
            Regime("huge", "mean squares above 1e30: a clamp, a sum that overflows", _huge, a_row_sum),
            Regime("inf_nan", "Inf and NaN must come through, and stay in their row", _inf_nan),
            Regime("saturating_gates", "exp of a large gate, both signs", _saturating_gates, a_gate),
            Regime("gate_sweep", "every part of the activation's curve", _gate_sweep, a_gate),
            Regime("ties", "results exactly between two values: any rounding but ties to even", _ties, numbers={"eps": 0.0}),
            Regime(
                "near_ties",
                "results next to ties: an rstd that leans by a few fp32 steps shows",
                _near_ties,
                a_row_sum,
                rows=96,
                weight_dtype="fp32",
            ),
            Regime("switches", "both sides of where the formula changes its form", _switches, a_switch),
        )
    }
)


def names(op: Operator) -> tuple[str, ...]:
    """The names of the regimes that mean something for an operator, in their fixed order."""
    return tuple(regime.name for regime in REGIMES.values() if regime.needs(op))


def draw(regime: str, d: Draw, weight_format: Format, seed: int, weights: str = USUAL) -> Values:
    """The input tensors of a regime on the CPU, contiguous, in their storage dtypes, by name.

    A row tensor is (rows, its row's length); a vector (width,), from the family `weights`, or what the regime of the rows comes
    with where that is the usual one.
    """
    d.generator.manual_seed(seed)
    values = REGIMES[regime].values(d)
    for name in d.op.vectors:
        if weights != USUAL or name not in values:
            values[name] = WEIGHTS[weights].values(d, weight_format)
    formats = {name: weight_format if name in d.op.vectors else d.dtype for name in d.op.inputs}
    return {name: tensor.to(formats[name].torch) for name, tensor in d.op.assemble(values).items()}
