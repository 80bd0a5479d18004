"""`lockstep checkpoint RUN`: what it asks, what it waits for, and how it ends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli.actions import save
from lockstep.cli.errors import CliError, ExitCode
from lockstep.cli.main import main
from support import sample_runs as sample
from support.cli_server import CliServer


def with_run(raw: dict[str, Any], *results: str) -> CliServer:
    """Watches of the run show one answer to the request after the other."""
    return CliServer({"trainingruns/llama": raw}, watches=[partial(answered, result) for result in results])


def answered(result: str, server: CliServer) -> Iterable[tuple[str, dict[str, Any]]]:
    raw = server.objects["trainingruns/llama"]
    token = raw["metadata"]["annotations"][names.ANNOTATION_CHECKPOINT_REQUEST]
    raw["status"]["requests"] = [{"name": "checkpoint-request", "token": token, "result": result}]
    return [("MODIFIED", raw)]


def answer_of(server: CliServer, timeout: float | None = None) -> str:
    raw, token = save.ask(server, "llama")
    return save.answer(server, raw, token, timeout)


def test_the_answer_is_the_step_that_became_valid() -> None:
    assert answer_of(with_run(sample.running(), "TakenUp", "TakenUp", "Saved step 120")) == "Saved step 120"


@pytest.mark.parametrize("result", ["NobodyListens", "NotRunning", "Expired", "Failed"])
def test_when_nothing_was_saved_it_fails_with_the_reason(result: str) -> None:
    with pytest.raises(CliError, match="was not saved") as failed:
        answer_of(with_run(sample.running(), result))
    assert failed.value.exit_code is ExitCode.FAILED
    assert failed.value.args
    assert "{run}" not in str(failed.value)


def test_it_stops_waiting_when_the_time_is_up() -> None:
    with pytest.raises(CliError, match="time is up") as failed:
        answer_of(with_run(sample.running(), "TakenUp"), timeout=0.0)
    assert failed.value.exit_code is ExitCode.TIMED_OUT


def test_a_request_that_another_one_replaced_is_not_waited_for() -> None:
    server = with_run(sample.running())
    raw, _ = save.ask(server, "llama")
    with pytest.raises(CliError, match="somebody else"):
        save.answer(server, raw, "mine", None)


def test_every_request_has_a_token_of_its_own() -> None:
    server = with_run(sample.running())
    tokens = {save.ask(server, "llama")[1] for _ in range(3)}
    assert len(tokens) == 3


def test_a_run_that_has_finished_is_not_asked() -> None:
    with pytest.raises(CliError, match="has finished already"):
        save.ask(with_run(sample.failed()), "llama")


def test_the_word_save_may_be_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.cli.client.connect", lambda *given: with_run(sample.running(), "Saved step 7"))
    for arguments in (["llama", "--wait"], ["--wait", "llama"], ["save", "llama", "--wait"]):
        with pytest.raises(SystemExit) as left:
            main(["checkpoint", *arguments])
        assert left.value.code in (0, None)
    assert "Saved step 7" in capsys.readouterr().out
