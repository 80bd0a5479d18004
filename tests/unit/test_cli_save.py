"""`lockstep checkpoint RUN`: what it asks, what it waits for, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from lockstep.api.base import names
from lockstep.cli.actions import save
from lockstep.cli.client import Cluster
from lockstep.cli.errors import CliError, ExitCode
from lockstep.cli.main import main
from support import sample_runs as sample


class Server:
    """Keeps one run; answers watches with one answer to the request after the other."""

    namespace = "team"

    def __init__(self, raw: dict[str, Any], *results: str) -> None:
        self.raw = raw
        self.results = list(results)

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return self.raw

    def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.raw["metadata"].setdefault("annotations", {}).update(patch["metadata"]["annotations"])
        return self.raw

    def watch(self, path: str, *, seconds: float, **query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        if not self.results:
            return
        token = self.raw["metadata"]["annotations"][names.ANNOTATION_CHECKPOINT_REQUEST]
        request = {"name": "checkpoint-request", "token": token, "result": self.results.pop(0)}
        self.raw["status"]["requests"] = [request]
        yield "MODIFIED", self.raw


def answer_of(server: Server, timeout: float | None = None) -> str:
    raw, token = save.ask(cast(Cluster, server), "hello")
    return save.answer(cast(Cluster, server), raw, token, timeout)


def test_the_answer_is_the_step_that_became_valid() -> None:
    assert answer_of(Server(sample.running(), "TakenUp", "TakenUp", "Saved step 120")) == "Saved step 120"


@pytest.mark.parametrize("result", ["NobodyListens", "NotRunning", "Expired", "Failed"])
def test_when_nothing_was_saved_it_fails_with_the_reason(result: str) -> None:
    with pytest.raises(CliError, match="was not saved") as failed:
        answer_of(Server(sample.running(), result))
    assert failed.value.exit_code is ExitCode.FAILED
    assert failed.value.args
    assert "{run}" not in str(failed.value)


def test_it_stops_waiting_when_the_time_is_up() -> None:
    with pytest.raises(CliError, match="time is up") as failed:
        answer_of(Server(sample.running(), "TakenUp"), timeout=0.0)
    assert failed.value.exit_code is ExitCode.TIMED_OUT


def test_a_request_that_another_one_replaced_is_not_waited_for() -> None:
    server = Server(sample.running())
    raw, _ = save.ask(cast(Cluster, server), "hello")
    with pytest.raises(CliError, match="somebody else"):
        save.answer(cast(Cluster, server), raw, "mine", None)


def test_every_request_has_a_token_of_its_own() -> None:
    server = Server(sample.running())
    tokens = {save.ask(cast(Cluster, server), "hello")[1] for _ in range(3)}
    assert len(tokens) == 3


def test_a_run_that_has_finished_is_not_asked() -> None:
    with pytest.raises(CliError, match="has finished already"):
        save.ask(cast(Cluster, Server(sample.failed())), "hello")


def test_the_word_save_may_be_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.cli.client.connect", lambda *given: Server(sample.running(), "Saved step 7"))
    for arguments in (["hello", "--wait"], ["--wait", "hello"], ["save", "hello", "--wait"]):
        with pytest.raises(SystemExit) as left:
            main(["checkpoint", *arguments])
        assert left.value.code in (0, None)
    assert "Saved step 7" in capsys.readouterr().out
