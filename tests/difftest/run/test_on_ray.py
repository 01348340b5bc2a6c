"""The pool's other engine: a cluster gives the same journal as this machine, also where a node is killed in the middle."""

import json
import os

import pytest

from difftest.cases import Request, generate
from difftest.errors import LackingError, UsageError
from difftest.options import cluster
from difftest.run import on_ray, pool
from difftest.run.journal import Journal
from difftest.run.session import Session, run
from reference.contracts import contract

CASES = list(generate(Request({"rmsnorm": contract("rmsnorm")}, ["bf16", "fp32"], [3, 64, 256], rows=[4])))
ABOUT = {"candidate": "a"}


@pytest.mark.parametrize("on", ["rays", "ray:", "localhost"])
def test_what_names_no_cluster_is_refused(on):
    with pytest.raises(UsageError, match=r"--on: .* allowed: ray, ray://ADDRESS"):
        cluster(on)


def test_without_ray_the_error_names_the_cure(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(LackingError, match=r"--on: needs ray, .* pip install 'numba-kernels\[ray\]'"):
        on_ray.run(None, [[1]], print, processes=0, on=on_ray.LOCAL, limits=pool.Limits())


@pytest.fixture
def two_nodes(monkeypatch):
    """A local cluster: a head without a core, and two nodes of one each."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'numba-kernels[ray]'")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    made.nodes = [made.add_node(num_cpus=1), made.add_node(num_cpus=1)]
    yield made
    made.shutdown()
    os.environ.pop("RAY_ADDRESS", None)


@pytest.mark.slow
def test_two_nodes_one_of_which_is_killed_give_the_journal_that_this_machine_gives(two_nodes, broken, tmp_path):
    every = frozenset(range(len(CASES)))
    session = Session(CASES, broken("dies", "dies_at_width_3"), ["torch"], again=every)
    here = Journal(tmp_path / "here.jsonl", ABOUT)
    expected = run(session, journal=here)
    seen = []

    def kill_one(case):
        seen.append(case)
        if len(seen) == 10:
            two_nodes.remove_node(two_nodes.nodes[0], allow_graceful=False)

    there = Journal(tmp_path / "there.jsonl", ABOUT)
    outcome = run(Session(CASES, session.candidate, ["torch"], again=every, on=on_ray.LOCAL), kill_one, there)
    assert outcome.not_run == 0
    assert outcome.results == expected.results
    assert sorted(there.path.read_text().splitlines()) == sorted(here.path.read_text().splitlines())
    assert len(json.loads(there.path.read_text().splitlines()[1])["found"]) == 1
