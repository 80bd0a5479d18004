"""kill -9 of the operator, at every moment that can be told apart: it changes nothing but its own log."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from harness.site import Run, Site

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
PATIENCE = 240.0  # a dozen operators have to come up one after the other


def assert_nothing_went_backwards(run: Run) -> None:
    """Over all statuses written, by whichever operator: attempt, revision and incarnations only grow."""
    for before, after in itertools.pairwise(run.written()):
        assert after.get("attempt", 0) >= before.get("attempt", 0)
        old, new = before.get("assignment", {}), after.get("assignment", {})
        assert new.get("revision", 0) >= old.get("revision", 0)
        assert all(b >= a for a, b in zip(old.get("incarnations", ()), new.get("incarnations", ()), strict=False))


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(False, id="dies-with-the-answer-on-its-way"),
        pytest.param(True, id="dies-before-its-next", marks=pytest.mark.nightly),
    ],
)
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

    run.wait("launched", lambda: runs(1), PATIENCE)
    before = run.pod_uids
    site.workers.fail(run.uid, rank=1)
    run.wait("restarted in place", lambda: runs(2), PATIENCE)
    assert run.pod_uids == before
    lost = run.status["assignment"]["nodes"][2]
    site.cluster.remove_kwok_nodes([lost])
    run.wait("a node replaced", lambda: runs(3), PATIENCE)
    site.workers.finish(run.uid)
    run.wait("finished", lambda: crash_again() and run.is_true("Finished"), PATIENCE)
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


def test_ranks_released_before_and_after_a_crash_run_the_same_attempt_from_the_same_step(
    site: Site, namespace: str
) -> None:
    """The operator dies when it has released k of 4 ranks, for every k from 0 to 4."""
    site.make_claim(namespace, "lustre")
    # Without the rule a node whose rank fails first twice would be left.
    rules = [{"name": "on-purpose", "exitCodes": [1, 137], "action": "RestartInPlace"}]
    spec = {"checkpoint": {"shared": {"claimName": "lustre"}}, "recovery": {"rules": rules}}
    run = site.apply(namespace, "gpt", nodes=4, **spec)
    run.wait_until_running(1)
    for k in range(5):
        attempt = k + 2
        path = site.workers.save(run.uid, namespace, run.name, step=100 * attempt)
        release = _Release(site, run.uid, attempt, k)
        site.workers.hold_replies(release)
        site.workers.fail(run.uid, rank=k % 4)
        run.wait(f"{k} ranks released", release.over.is_set)
        site.kill_operator()
        site.workers.hold_replies(lambda body, reply: True)
        run.wait_until_running(attempt)
        assert len(release.released) == k
        assert run.heard.slots_of(attempt) == [0, 1, 2, 3]
        resume = run.heard.start(attempt)["resume"]
        assert (resume["step"], resume["path"]) == (100 * attempt, path)
    assert run.heard.attempts() == [1, 2, 3, 4, 5, 6]
    assert run.deleted_pods() == []
    assert_nothing_went_backwards(run)
    run.delete()


class _Release:
    """Lets the order to run ``attempt`` through to the first ``k`` slots; ``over`` when the next one was due."""

    def __init__(self, site: Site, run_uid: str, attempt: int, k: int) -> None:
        self.released: set[int] = set()
        self.over = threading.Event()
        self._order = (run_uid, attempt)
        self._k = k

    def __call__(self, body: Json, reply: Json) -> bool:
        if (body["runUid"], reply["attempt"]) != self._order or reply["phase"] != "Run":
            return True
        if len(self.released) < self._k:
            self.released.add(body["slot"])
        if len(self.released) == self._k:
            self.over.set()
        return body["slot"] in self.released
