"""What the verbs print, word by word. LOCKSTEP_WRITE_GOLDEN=1 writes the expected texts anew."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.run_status import QueueStatus
from lockstep.cli import runs
from lockstep.cli.views import events, history, priorities, queue, queues
from lockstep.core.model.snapshot import NodeView
from lockstep.present.amounts import duration
from lockstep.present.explanation import LiveAdmission, NotLive
from support import sample_runs as sample
from support.cli_views import FREE, GOLDEN, LEVELS, TOLD, explained, in_utc, paged
from support.sample_runs import NOW


@pytest.fixture(autouse=True)
def _far_from_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_utc(monkeypatch):
        yield


def node(name: str, rack: str) -> NodeView:
    labels = {names.LABEL_HOSTNAME: name, LEVELS["rack"]: rack}
    return NodeView(name=name, uid=name, labels=labels, allocatable={})


NODES = {n.name: n for n in (node("gpu-1", "r2"), node("gpu-2", "r2"), node("gpu-10", "r10"), node("gpu-11", "r10"))}
BUSY = LiveAdmission(
    queue=QueueStatus(position=2, reason="Priority", message="behind team/big"),
    ahead=(("team/big", QueueStatus(position=1, reason="Resources", message="needs 8 nodes, 1 fit")),),
    nodes=4,
    holders=(("team/llama", ("gpu-1", "gpu-2", "gpu-10")),),
)


def gone_on_from() -> dict[str, Any]:
    raw = sample.failed()
    return raw | {"status": raw["status"] | {"next": {"name": "llama-2", "uid": "u"}}}


def goes_on() -> dict[str, Any]:
    raw = sample.pending()
    before = {"name": "llama", "uid": "u-1", "outcome": "Failed", "reason": "NoProgress", "ended": sample.at(600)}
    previous = [before | {"attempts": 3, "saved": 400}, before | {"uid": "u-0"}]
    return raw | {"status": raw["status"] | {"previous": previous}}


def everybody() -> list[dict[str, Any]]:
    return [sample.failed(), sample.pending("second"), sample.running(), sample.pending("first", position=1)]


def listed(*, wide: bool = False, with_namespace: bool = False) -> list[str]:
    views = sorted((runs.view(raw) for raw in everybody()), key=queue.order)
    return queue.listing(views, with_namespace, wide, NOW)


FORETOLD = LiveAdmission(
    queue=QueueStatus.load({"position": 1, "reason": "Resources", "message": "needs 4 nodes, 1 fit", **TOLD}),
    ahead=(),
    nodes=4,
    holders=(),
)
UNKNOWN = {"assumption": "not known: it rests on the end of a run that has no time limit", "updated": sample.at(30)}


def waiting() -> list[dict[str, Any]]:
    return [sample.pending("second", **UNKNOWN), sample.pending("first", position=1, **TOLD)]


def backfilled() -> dict[str, Any]:
    raw = sample.running()
    raw["status"]["admission"] = {"timeLimit": 7200, "askedLimit": "8h", "backfilled": True}
    return raw | {"spec": raw["spec"] | {"timeLimit": "8h"}}


def extended() -> dict[str, Any]:
    raw = sample.running()
    why = "it would overrun the maintenance window firmware, which begins at 2026-12-01T08:00:00Z"
    raw["status"]["admission"] = {"timeLimit": 7200, "askedLimit": "8h", "limitedBy": why}
    return raw | {"spec": raw["spec"] | {"timeLimit": "8h"}}


def queue_objects() -> list[dict[str, Any]]:
    quotas = [{"gpuType": "H100", "nominalNodes": 8, "borrowingLimit": 4}, {"gpuType": "Any", "nominalNodes": 2}]
    usage = [{"gpuType": "H100", "nodes": 10, "borrowed": 2}]
    lab = {"cohort": "lab", "quotas": quotas, "heldRuns": ["team/llama"]}
    status = {"pending": 3, "running": 2, "nodesInUse": 10, "usage": usage, "gpuHoursLastDay": 1920}
    return [
        {"metadata": {"name": "research"}, "spec": lab, "status": status},
        {"metadata": {"name": "spare"}, "spec": {"stopPolicy": "Hold"}},
    ]


VIEWS: dict[str, Callable[[], Iterable[str]]] = {
    "queue": listed,
    "queue-wide": lambda: listed(wide=True, with_namespace=True),
    "queue-told": lambda: queue.listing([runs.view(raw) for raw in waiting()], False, True, NOW),
    "queue-start": lambda: queue.starts(sorted((runs.view(raw) for raw in waiting()), key=queue.soonest), True),
    "prio": lambda: priorities.listing([runs.view(raw) for raw in waiting()], False),
    "queues": lambda: queues.listing(queue_objects(), False),
    "queues-wide": lambda: queues.listing(queue_objects(), True),
    "info-told": lambda: paged(sample.pending(**TOLD)),
    "info-backfilled": lambda: paged(backfilled(), NODES),
    "explain-pending-foretold": lambda: explained(sample.pending(), FORETOLD),
    "explain-pending-unknown-start": lambda: explained(
        sample.pending(**UNKNOWN), NotLive("you may not read the nodes")
    ),
    "explain-backfilled": lambda: explained(backfilled()),
    "info-running": lambda: paged(sample.running(), NODES),
    "info-without-node-rights": lambda: paged(sample.running()),
    "info-pending": lambda: paged(sample.pending()),
    "explain-extended": lambda: explained(extended()),
    "explain-new": lambda: explained(sample.run()),
    "explain-pending-live": lambda: explained(sample.pending(), BUSY),
    "explain-pending-free": lambda: explained(sample.pending(), FREE),
    "explain-pending-from-status": lambda: explained(sample.pending(), NotLive("you may not read the nodes")),
    "explain-running": lambda: explained(sample.running()),
    "explain-recovering": lambda: explained(sample.recovering()),
    "explain-failed": lambda: explained(sample.failed()),
    "explain-gone-on-from": lambda: explained(gone_on_from()),
    "explain-goes-on": lambda: explained(goes_on()),
    "history": lambda: history.listing(runs.view(sample.recovering()).status, wide=False, now=NOW),
    "history-wide": lambda: history.listing(runs.view(sample.recovering()).status, wide=True, now=NOW),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_reads_as_it_was_reviewed(name: str) -> None:
    text = "\n".join(VIEWS[name]()) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("LOCKSTEP_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_output_that_nobody_looks_at_has_no_colour() -> None:
    assert all("\x1b" not in line for line in listed())


def test_a_terminal_gets_colour_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = [line for line in listed() if "\x1b" not in line]
    assert len(plain) < len(listed())
    monkeypatch.setenv("NO_COLOR", "1")
    assert all("\x1b" not in line for line in listed())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (3600, "60m"), (3 * 3600, "3h"),
     (5 * 3600 + 600, "5h10m"), (47 * 3600, "47h"), (50 * 3600, "2d2h"), (9 * 86_400, "9d")],
)  # fmt: skip
def test_ages_are_written_as_kubectl_writes_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_events_come_in_the_order_they_were_last_seen_with_their_count() -> None:
    def event(reason: str, seconds_ago: float, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"creationTimestamp": sample.at(5000)},
            "eventTime": sample.at(seconds_ago),
            "regarding": {"kind": "TrainingRun", "name": "llama", "uid": sample.UID},
            "type": "Normal",
            "reason": reason,
            "note": f"{reason} it\nwas",
            **more,
        }

    repeated = event("Again", 4000, series={"count": 3, "lastObservedTime": sample.at(10)})
    of_node = event("NodeLost", 60, related={"kind": "Node", "name": "gpu-3"})
    rows = events.listing(sorted([repeated, event("Old", 300), of_node], key=events.last_seen), NOW)
    assert [row.split()[0] for row in rows[1:]] == ["5m", "60s", "10s"]
    assert "TrainingRun/llama, Node/gpu-3" in rows[2]
    assert "10s (x3)" in rows[3]
    assert rows[3].endswith("Again it was")


def test_the_dashboard_of_ray_is_shown_where_there_is_one() -> None:
    raw = sample.running()
    assert not [line for line in paged(raw) if "Dashboard" in line]
    raw["status"]["start"]["dashboard"] = "10.0.0.1:20002"
    [line] = [line for line in paged(raw) if "Dashboard" in line]
    assert line.endswith(" http://10.0.0.1:20002")
