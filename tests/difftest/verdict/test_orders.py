"""Sums in a named order are admitted by what they give, on rows where no bound of a chain explains them; faults are not."""

import numpy as np
import pytest
import torch

from difftest.cases import Request, regimes
from difftest.verdict import judge
from difftest.verdict.orders import named
from reference.arithmetic import Fp32
from reference.contracts import contract_of
from reference.operators import OPERATORS

from .biased import run


def serial(squares):
    return torch.from_numpy(np.cumsum(squares.numpy(), axis=-1, dtype=np.float32))[..., -1:]


class Serial(Fp32):
    """One sum from the first element to the last."""

    def mean_square(self, row):
        return serial(row.square()) / row.shape[-1]


class SerialFromTheEnd(Fp32):
    def mean_square(self, row):
        return serial(row.square().flip(-1)) / row.shape[-1]


class SerialInFmas(Fp32):
    def mean_square(self, row):
        total = torch.zeros_like(row[..., 0])
        for column in row.double().square().unbind(-1):
            total = (total.double() + column).float()
        return total[..., None] / row.shape[-1]


class EightLanes(Fp32):
    """As a vectorised loop on a CPU sums."""

    def mean_square(self, row):
        squares = row.square().unflatten(-1, (-1, 8)).transpose(-1, -2)
        return serial(squares)[..., 0].sum(-1, keepdim=True) / row.shape[-1]


ORDERS = {
    Serial: "serial",
    SerialFromTheEnd: "serial from the end",
    SerialInFmas: "serial in FMAs",
    EightLanes: "8 lanes in turn",
}


def verdict_of(kind, regime, dtype, width, op="rmsnorm", seed=0, rows=8, change=None):
    request = Request({op: contract_of(op)}, [dtype], [width], seed=seed)
    case = request.template(op, dtype, width, regime, (rows,))
    inputs = case.inputs()
    outputs = run(kind, OPERATORS[op], inputs, case.contract)
    if change:
        outputs["output"] = (outputs["output"].double() * (1 + change)).to(outputs["output"].dtype)
    return judge(op, inputs, outputs, case.contract)


@pytest.mark.parametrize("dtype", ["fp32", *(pytest.param(each, marks=pytest.mark.slow) for each in ("bf16", "fp16"))])
@pytest.mark.parametrize("kind", ORDERS)
def test_a_named_order_conforms_in_every_regime(kind, dtype):
    for regime in regimes.names(OPERATORS["rmsnorm"]):
        verdict = verdict_of(kind, regime, dtype, 4096)
        assert verdict.conforms, (regime, verdict.reasons)


@pytest.mark.parametrize("width", [32768, 131072])
def test_a_serial_sum_of_a_wide_row_conforms_by_its_name(width):
    for dtype, regime in (("bf16", "rounding_row"), ("bf16", "normal"), ("fp32", "normal")):
        assert verdict_of(Serial, regime, dtype, width, rows=2).conforms
    verdict = verdict_of(Serial, "rounding_row", "fp32", width, rows=2)
    assert verdict.conforms
    assert verdict.statistics["order"] == "serial"


def test_a_serial_sum_that_drops_an_element_or_is_off_by_more_than_its_roundings_is_found():
    class Drops(Serial):
        def mean_square(self, row):
            row = row.clone()
            row[..., 75] = 0
            return super().mean_square(row)

    for regime, dtype in (("normal", "bf16"), ("normal", "fp32"), ("rounding_row", "fp32")):
        assert not verdict_of(Drops, regime, dtype, 4096).conforms
    assert not verdict_of(Serial, "normal", "fp32", 4096, change=3e-6).conforms
    assert not verdict_of(Serial, "rounding_row", "fp32", 4096, change=1e-5).conforms


def test_the_reason_names_the_bound_that_failed_and_that_no_order_helped():
    reason = verdict_of(Fp32, "normal", "fp32", 4096, change=2e-5).reasons[0]
    assert "138 additions in sequence explain 4.5e-06, and no named order this" in reason


def test_every_order_has_a_name_of_its_own_and_sums_exactly_what_is_exact():
    orders = list(named())
    assert len({order.name for order in orders}) == len(orders) == 12
    rows = torch.arange(1.0, 101.0).double().repeat(2, 1)
    for order in orders:
        assert order.total(rows).tolist() == [[338350.0]] * 2, order.name
