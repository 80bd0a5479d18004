"""A smaller gang grows back after a save: when, into which nodes, and before whom not."""

from dataclasses import replace

import pytest

from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.conditions import find
from support.elastic_gangs import ranks, running, save, shrunk, world
from support.world import World, node, spec


@pytest.mark.slow
def test_it_grows_back_after_a_save_and_not_before_its_time() -> None:
    w = shrunk({"min": 2, "growAfter": "10m"})
    w.nodes["n9"] = node("n9", rack="rack-0")
    w.pass_time(300, step=30)
    assert "n9" not in w.status("llama").assignment.nodes, "nodes are not held for later"
    for _ in range(12):
        w.train("llama", 5)
        w.pass_time(30, step=10)
    status = w.status("llama")
    assert len(w.children("llama")) == 4, status
    assert status.resolved.nodes == 4
    assert find(status, "AtFullSize") is None
    resized = next(entry for entry in status.attempts if entry.cause == "Resized")
    assert (resized.rank, resized.charged, resized.action) == (None, False, "RestartInPlace")
    assert status.start is not None
    assert status.start.resume is not None
    assert status.checkpoint.save is not None
    assert status.start.resume.step >= status.checkpoint.save.needs_step
    assert status.recovery.shrunk_at is None


@pytest.mark.slow
def test_it_does_not_grow_into_a_maintenance_window_and_does_when_that_is_over() -> None:
    w = shrunk({"min": 2, "growAfter": "1m"})
    closed = MaintenanceWindow("firmware", w.now, 600.0, nodes=frozenset({"n9"}))
    w.tunables = replace(w.tunables, admission=AdmissionSettings(windows=(closed,)))
    w.nodes["n9"] = node("n9", rack="rack-0")

    def train(seconds: int) -> int:
        for _ in range(seconds // 30):
            w.train("llama", 5)
            w.pass_time(30, step=10)
        return len(w.children("llama"))

    assert train(540) == 3
    assert train(360) == 4


def test_a_run_that_waits_for_nodes_comes_before_growth() -> None:
    w = shrunk({"min": 2, "growAfter": "1m"})
    w.roll_out("other", spec(2))
    w.nodes["n9"] = node("n9")
    w.pass_time(200, step=20)
    assert "n9" not in w.status("llama").assignment.nodes
    w.nodes["n10"] = node("n10")
    w.settle()
    assert set(w.status("other").assignment.nodes) == {"n9", "n10"}


def test_it_takes_no_nodes_that_would_not_make_a_next_size() -> None:
    w = running(world(4), 4, elastic={"min": 2, "multipleOf": 2, "growAfter": "1m"})
    save(w)
    w.lose_ranks("llama", 1, 2)
    w.pass_time(70, step=5)
    assert ranks(w) == (0, 3)
    w.nodes["n9"] = node("n9")
    w.pass_time(200, step=20)
    assert "n9" not in w.status("llama").assignment.nodes
    w.nodes["n8"] = node("n8")
    for _ in range(4):
        w.train("llama", 5)
        w.pass_time(20, step=5)
    assert len(w.children("llama")) == 4


@pytest.mark.slow
def test_new_ranks_join_those_of_their_rack() -> None:
    w = World({f"n{i}": node(f"n{i}", rack=rack) for i, rack in enumerate("aabb")}, format="TorchDCP", listens=True)
    running(w, 4, elastic={"min": 2, "growAfter": "1m"})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(70, step=5)
    w.nodes["n9"] = node("n9", rack="a")
    for _ in range(6):
        w.train("llama", 5)
        w.pass_time(20, step=5)
    names = [w.status("llama").assignment.nodes[slot] for slot in ranks(w)]
    assert names == ["n0", "n9", "n2", "n3"]


@pytest.mark.parametrize("saves", [True, False])
def test_without_a_save_it_does_not_grow_unless_nobody_listens(saves: bool) -> None:
    w = shrunk({"min": 2, "growAfter": "1m"})
    w.saves_succeed = False
    w.listens = saves
    w.nodes["n9"] = node("n9")
    for _ in range(4):
        w.pass_time(30, step=10)
    assert len(w.children("llama")) == (3 if saves else 4)


def test_it_grows_once_with_all_that_are_about_to_be_ready() -> None:
    w = running(world(6), 2)
    save(w)
    before = set(w.pods)
    w.apply("llama", spec(4, elastic={"min": 2}))
    w.reconcile("llama")
    w.admit()
    w.reconcile("llama")
    late = next(pod.node for name, pod in sorted(w.pods.items()) if name not in before)
    w.silent_nodes.add(late)  # its kubelet takes its time
    w.pass_time(10)
    assert w.status("llama").attempt == 1
    w.silent_nodes.discard(late)
    w.pass_time(20)
    assert (w.status("llama").attempt, len(w.children("llama"))) == (2, 4)
