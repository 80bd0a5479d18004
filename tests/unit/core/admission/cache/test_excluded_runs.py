"""Runs that are left out of cycles: until when, as what others see them, and what they are told."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.cache.excluded_runs import ExcludedRun, exclusion_writes, without
from lockstep.core.model.snapshot import RunView
from support.admission import NOW, run, world

KNOWN = ExcludedRun(run("a"), KeyError("x"), NOW + 600)


@pytest.mark.parametrize(
    ("view", "now", "still"),
    [
        (run("a"), NOW, True),
        (run("a"), NOW + 599, True),
        (run("a"), NOW + 600, False),
        (replace(run("a"), resource_version="8"), NOW, True),
        (run("a", status={"queue": QueueStatus(reason="Undecidable", message="x")}), NOW, True),
        (run("a", 2), NOW, False),
        (replace(run("a"), labels={"team": "b"}), NOW, False),
        (replace(run("a"), annotations={"lockstep.dev/paused": "true"}), NOW, False),
    ],
)
def test_a_run_is_left_out_until_its_user_changes_it_or_its_time_is_over(
    view: RunView, now: float, still: bool
) -> None:
    assert KNOWN.is_still(view, now) is still


def test_a_run_that_is_left_out_is_there_for_others_and_asks_for_nothing() -> None:
    snapshot = world([run("a"), run("b")])
    runs = without(snapshot, ["uid-a"]).runs
    assert [(view.name, view.spec is None) for view in runs] == [("a", True), ("b", False)]
    assert without(snapshot, []) is snapshot


def test_a_run_that_is_left_out_is_told_so_once_in_words_that_name_the_operator() -> None:
    left_out = {"uid-a": KNOWN}
    [write] = exclusion_writes([run("a"), run("b")], left_out, NOW)
    assert (write.name, write.status.queue.reason, write.status.queue.updated) == ("a", "Undecidable", NOW)
    assert "(KeyError), which is a defect of the operator" in write.status.queue.message
    assert [event.type for event in write.events] == ["Warning"]
    knows = replace(run("a"), status=write.status)
    assert not list(exclusion_writes([knows], left_out, NOW + 9))
    heard = changed(write.status.queue, message="something else")
    assert list(exclusion_writes([replace(knows, status=changed(write.status, queue=heard))], left_out, NOW))
