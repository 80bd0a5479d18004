"""The queue as it is listed, ordered and watched, and in which words starts are estimated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import pytest

from lockstep.api.run_status import QueueStatus
from lockstep.cli import output, runs
from lockstep.cli.errors import ApiServerError, CliError, Unreachable
from lockstep.cli.options import Selection
from lockstep.cli.views import priorities, queue
from lockstep.present import start_estimate
from support import sample_runs as sample
from support.cli_server import CliServer
from support.cli_views import TOLD, in_utc
from support.sample_runs import NOW


@pytest.fixture(autouse=True)
def _far_from_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_utc(monkeypatch):
        yield


def test_a_run_that_has_ended_and_holds_nodes_is_in_the_queue_until_it_does_not() -> None:
    raw = sample.running(state="Cancelled", reason="Cancelled", leaving={"nodes": 4, "until": sample.at(-90)})
    raw["status"]["conditions"][-2] = sample.condition("Finished", "True", "Cancelled")
    ended = runs.view(raw)
    assert not queue.is_over(ended)
    everybody = sorted([runs.view(sample.pending()), ended], key=queue.order)
    line = queue.listing(everybody, False, True, NOW)[1]
    assert line.split()[:6] == ["llama", "-", "Cancelled", "Cancelled", "4", "held"]
    assert "its pods still hold 4 nodes; they are deleted in 90s at the latest" in line
    del raw["status"]["leaving"]
    assert queue.is_over(runs.view(raw))


def test_an_estimate_is_worded_by_one_function_for_every_table_and_sentence() -> None:
    told = QueueStatus.load({"position": 1, **TOLD})
    assert start_estimate.column(told, NOW) == "in 40m"
    assert start_estimate.expectation(told, NOW).startswith("in 40m (")
    assert start_estimate.column(told) in start_estimate.expectation(told, NOW)
    assert [start_estimate.column(QueueStatus(position=place), NOW) for place in (1, 0)] == ["?", ""]
    assert start_estimate.column(QueueStatus()) == "?"
    assert start_estimate.column(told, NOW + 9000) == "now"


def test_prio_stands_in_the_order_of_the_queue_though_points_are_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position is told within seconds, points every quarter of an hour."""
    raws = [
        sample.pending("gp", position=3, priority=16, updated=sample.at(5)),
        sample.pending("sweep", position=2, priority=15, updated=sample.at(5)),
        sample.pending("held", position=0, priority=99, updated=sample.at(5)),
        sample.pending("first", position=1, priority=9, updated=sample.at(5)),
    ]
    lines: list[str] = []
    by_name = {raw["metadata"]["name"]: raw for raw in raws}
    monkeypatch.setattr(runs, "fetch", lambda _, name: by_name[name])
    monkeypatch.setattr(output, "print_lines", lines.extend)
    priorities.show(cast(Any, None), [*by_name], Selection())
    assert [line.split()[0] for line in lines[1:]] == ["first", "sweep", "gp", "held"]


@pytest.mark.parametrize(
    "away", [Unreachable("no answer"), ApiServerError(500, "no leader"), ApiServerError(429, "busy")]
)
def test_a_watched_queue_waits_for_a_server_that_is_away(
    away: CliError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queue, "_AT_LEAST_SECONDS", 0.0)
    listed: list[Any] = [away, {"metadata": {"resourceVersion": "9"}, "items": [sample.failed()]}]

    def look(path: str, **_: Any) -> Any:
        answer = listed.pop(0)
        if isinstance(answer, CliError):
            raise answer
        return answer

    changes = [[("MODIFIED", sample.running())], away, ApiServerError(410, "too old"), [("MODIFIED", sample.pending())]]
    server = CliServer(watches=[away, away, *changes, ApiServerError(403, "forbidden")])
    monkeypatch.setattr(server, "list", look)
    seen = queue._changes(server, "/runs", {}, "3")
    states = [runs.view(raw).status.state for raw in islice(seen, 3)]
    assert states == [runs.view(raw).status.state for raw in (sample.running(), sample.failed(), sample.pending())]
    assert server.versions == ["3", "3", "3", "7", "7", "9"]
    assert capsys.readouterr().err == f"{away}; asking again until it answers.\n" * 2
    with pytest.raises(ApiServerError, match="forbidden"):
        next(seen)
