"""benchmarks/order.py: the orders of several implementations, each in its own process, in one result file."""

import runpy

from difftest.identify.order import survey
from difftest.pages.sources import ROOT
from difftest.report import jsonl

SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "order.py"))


def test_the_orders_of_all_are_one_result_file(tmp_path):
    file = tmp_path / "order.jsonl"
    words = f"{file} --device cpu --providers torch-rmsnorm,quack --widths 7 --dtypes bf16 --batches 1,3 --processes 0"
    SCRIPT["main"](words.split(), standalone_mode=False)
    document = jsonl.read("test", file, SCRIPT["SCHEMA"], "orders")
    eager, missing = document["orders"]
    assert (eager["provider"], eager["width"], eager["state"]) == ("torch-rmsnorm", 7, "tree")
    assert eager["batches"] == {"1": "same", "3": "same"}
    assert missing["skipped"] == "quack runs on CUDA devices only"


def test_no_width_is_begun_when_the_time_is_up(tmp_path):
    file = tmp_path / "order.jsonl"
    words = f"{file} --device cpu --providers torch --widths 7 --time-budget -1 --processes 0"
    SCRIPT["main"](words.split(), standalone_mode=False)
    found = jsonl.read("test", file, SCRIPT["SCHEMA"], "orders")["orders"]
    assert [entry["skipped"] for entry in found] == ["not begun before the time was up"] * 2


def test_a_provider_that_can_not_run_a_case_is_skipped_with_its_reason():
    case = survey.Case("rmsnorm", "bf16", (4,), 7, "", 0, SCRIPT["contract_of"]("rmsnorm"), device="cpu")
    do = survey.Survey(["flashinfer"], [case], (), 0, 64).begin(0)
    assert do(0) == {"skipped": "flashinfer runs on CUDA devices only"}
