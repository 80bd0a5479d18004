"""kill -9 of the operator, at every moment that can be told apart: it changes nothing but its own log."""

from __future__ import annotations

import itertools

import pytest

from support.site import Run, Site

pytestmark = pytest.mark.cluster


def assert_nothing_went_backwards(run: Run) -> None:
    """Over all statuses written, by whichever operator: attempt, revision and incarnations only grow."""
    for before, after in itertools.pairwise(run.written()):
        assert after.get("attempt", 0) >= before.get("attempt", 0)
        old, new = before.get("assignment", {}), after.get("assignment", {})
        assert new.get("revision", 0) >= old.get("revision", 0)
        assert all(b >= a for a, b in zip(old.get("incarnations", ()), new.get("incarnations", ()), strict=False))


@pytest.mark.parametrize("answered", [False, True], ids=["dies-with-the-answer-on-its-way", "dies-before-its-next"])
def test_operators_that_live_for_one_write_each_bring_a_gang_through_launch_and_recoveries(
    site: Site, namespace: str, answered: bool
) -> None:
    """A crash after every single write of a launch, of a restart in place and of a node's replacement."""
    run = site.apply(namespace, "llama", nodes=4)
    crashes = site.proxy.crashes

    def crash_again() -> bool:
        if not site.proxy.crash_is_due and not run.is_true("Finished"):
            site.proxy.crash_after(1, site.kill_operator, answered=answered)
        return True

    def runs(attempt: int) -> bool:
        return crash_again() and site.workers.running(run.uid, attempt) == 4

    run.wait("launched", lambda: runs(1), 90)
    before = run.pod_uids
    site.workers.fail(run.uid, rank=1)
    run.wait("restarted in place", lambda: runs(2), 120)
    assert run.pod_uids == before
    lost = run.status["assignment"]["nodes"][2]
    site.cluster.remove_kwok_nodes([lost])
    run.wait("a node replaced", lambda: runs(3), 120)
    site.workers.finish(run.uid)
    run.wait("finished", lambda: crash_again() and run.is_true("Finished"), 60)
    assert run.is_true("Succeeded")
    assert site.proxy.crashes - crashes > 15
    assert run.heard.attempts() == [1, 2, 3]
    for attempt in run.heard.attempts():
        assert run.heard.slots_of(attempt) == [0, 1, 2, 3]
        assert run.heard.start(attempt)["attempt"] == attempt
    assert_nothing_went_backwards(run)
    assert set(run.deleted_pods()) <= {run.pod_name(2, 1)}
    status = run.status
    assert status["assignment"]["incarnations"] == [1, 1, 2, 1]
    assert lost not in status["assignment"]["nodes"]
