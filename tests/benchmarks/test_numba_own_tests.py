"""The runner of Numba-CUDA's own tests: what it makes of a test, and what the committed result says."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import numba_own_tests

from difftest.pages import sources


def test_a_failure_in_a_part_of_a_test_is_the_test_s(capsys, monkeypatch):
    class Sample(unittest.TestCase):
        def test_passes(self):
            pass

        def test_fails_in_a_part(self):
            for k in range(2):
                with self.subTest(k=k):
                    assert k == 0

        def test_skips(self):
            self.skipTest("for the simulator")

    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    unittest.defaultTestLoader.loadTestsFromTestCase(Sample).run(numba_own_tests.Outcomes(lambda: 0))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {row["test"].rpartition(".")[2]: row["outcome"] for row in rows}
    assert found == {"test_passes": "passed", "test_fails_in_a_part": "failed", "test_skips": "skipped"}


def test_nineteen_of_twenty_pass_and_each_other_has_a_reason():
    document = sources.latest(sources.OWN_TESTS)
    total, passed = (sum(row[key] for row in document["modules"]) for key in ("tests", "passed"))
    assert passed / total >= 0.95
    assert len(document["failed"]) == total - passed
    assert all(row["why"] for row in document["failed"])
