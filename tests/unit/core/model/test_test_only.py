"""Which runs only ask when they would start."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.run_status import Condition
from lockstep.core.decide import decide
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.test_only import KEPT, is_test_only
from lockstep.core.model.tunables import Tunables
from support.admission import held, node, run, world

NOW = 1_000.0


@pytest.mark.parametrize(
    ("annotation", "status", "asks"),
    [
        ("true", {}, True),
        ("false", {}, False),
        ("", {}, False),
        (None, {}, False),
        ("true", {"attempt": 1}, False),
        ("true", held("n1"), False),
    ],
)
def test_a_run_only_asks_while_its_annotation_says_so_and_it_never_had_nodes(
    annotation: str | None, status: dict[str, Any], asks: bool
) -> None:
    annotations = {"lockstep.dev/test-only": annotation} if annotation is not None else {}
    assert is_test_only(replace(run("llama", status=status), annotations=annotations)) is asks


def refused(at: float) -> Condition:
    return Condition(type="Accepted", status="False", reason="InvalidSpec", last_transition_time=at)


@pytest.mark.parametrize(
    ("at", "annotation", "deleted"),
    [(NOW - KEPT, "true", True), (NOW - KEPT + 1, "true", False), (NOW - KEPT, "", False)],
)
@pytest.mark.parametrize("paused", [False, True])
def test_a_run_that_was_answered_is_deleted_when_its_answer_was_there_long_enough(
    at: float, annotation: str, deleted: bool, paused: bool
) -> None:
    view = run("llama", status={"conditions": (refused(at),)})
    view = replace(view, spec=None, spec_error="no", annotations={"lockstep.dev/test-only": annotation})
    if paused:
        view.annotations["lockstep.dev/paused"] = "true"
    cluster = world([view], [node("n1")])
    plan = decide(RunSnapshot(view, (), {}, nodes=cluster.nodes, leadership=cluster.leadership), Tunables(), NOW)
    assert plan.delete_run is (deleted and not paused)
