"""Gangs without workers that are stopped, started anew or resized: the grace of their pods, and their nodes."""

from dataclasses import replace

import pytest

from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import PodView
from support.plain_gangs import attempts_alive, live, plain, running
from support.world import World, node, phase


class Stubborn(World):
    """Pods do not end before the grace of their template is over."""

    grace = 0

    def _delete(self, pod: PodView) -> None:
        self.pods[pod.name] = replace(pod, deleting=True, killed_at=self.now + self.grace)


@pytest.mark.parametrize(("own", "graces"), [(1200, [None] * 2), (10**8, [None] * 2 + [3600] * 2)])
def test_pods_have_the_grace_of_their_template_to_save_and_no_more_than_an_hour(
    own: int, graces: list[int | None]
) -> None:
    w = Stubborn({name: node(name) for name in ("n1", "n2")})
    w.grace = own
    w.roll_out("one", plain())
    w.apply("one", plain(suspend=True))
    found: list[int | None] = []
    for _ in range(8):
        plan = w.reconcile("one")
        found += [gone.grace for gone in plan.deletes]
        for gone in plan.deletes:
            if gone.grace is not None:
                w.pods[gone.name] = replace(w.pods[gone.name], killed_at=w.now + gone.grace)
        w.now += w.tunables.deadlines.stop / 2
    assert found == graces


@pytest.mark.parametrize("spec", [{"timeLimit": "1h"}, {"budget": {"gpuHours": 2, "action": "Stop"}}])
def test_pods_have_that_grace_at_a_limit_too(spec: dict[str, object]) -> None:
    w = Stubborn({name: node(name) for name in ("n1", "n2")})
    w.grace = 1200
    template = {"spec": {"terminationGracePeriodSeconds": 1200}}
    w.roll_out("one", plain(gpusPerNode=1, podTemplate=template, **spec))
    found: list[int | None] = []
    for _ in range(120):
        w.now += 60
        found += [gone.grace for gone in w.reconcile("one").deletes]
        deleting = [pod for pod in w.pods.values() if pod.deleting]
        if deleting and w.now > deleting[0].killed_at - 60:
            break
    assert phase(w) is Phase.FINISHED
    assert [grace is None or grace > 1100 for grace in found] == [True, True]


@pytest.mark.parametrize("change", [{"suspend": True}, {"cancel": True}])
def test_a_stop_ends_the_pods_with_their_own_grace_and_gives_the_nodes_back(change: dict[str, bool]) -> None:
    w = running()
    w.apply("one", plain(**change))
    plan = w.reconcile("one")
    w.reconcile("one")
    assert [delete.grace for delete in plan.deletes] in ([], [None, None])
    w.settle()
    assert not live(w)
    assert phase(w) in (Phase.SUSPENDED, Phase.FINISHED)
    if "suspend" in change:
        w.roll_out("one", plain())
        assert phase(w) is Phase.RUNNING
        assert attempts_alive(w) == {w.status("one").attempt}
        assert w.status("one").attempt == 2


def test_a_restart_on_request_replaces_every_pod() -> None:
    w = running()
    w.request("one", restart_request="now")
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {2}
    assert w.status("one").assignment.incarnations == (2, 2)


def test_a_drained_node_is_left_by_the_whole_gang() -> None:
    w = running()
    w.drain("n1")
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert "n1" not in status.assignment.nodes
    assert attempts_alive(w) == {2}
    assert not status.attempts[0].charged


def test_a_changed_size_takes_the_gang_through_the_queue() -> None:
    w = running()
    w.apply("one", plain(3))
    w.pass_time(120.0, 10.0)
    assert phase(w) is Phase.RUNNING
    assert len(live(w)) == 3
    assert len(attempts_alive(w)) == 1
