"""Holding, releasing and requeueing: what is patched, and what is refused in whose words."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli.actions import change, hold
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.options import Chosen
from support import sample_runs as sample
from support.cli_server import CliServer


def with_run(*looks: dict[str, Any], held: list[str] | None = None, **more: Any) -> CliServer:
    """One run and one queue."""
    queue = {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingQueue",
        "metadata": {"name": "default", "resourceVersion": "3"},
        "spec": {"heldRuns": held} if held is not None else {},
    }
    return CliServer({"trainingruns/llama": [*looks], "trainingqueues/default": queue}, **more)


def patches(server: CliServer) -> list[dict[str, Any]]:
    return [patch for _, patch in server.patches]


def test_a_run_that_ends_while_it_is_suspended_is_told_to_have_ended(capsys: pytest.CaptureFixture[str]) -> None:
    refusals = {"patch": ApiServerError(422, "the run has ended", name="llama")}
    server = with_run(sample.running(), sample.failed(), refusals=refusals)
    change.apply(server, Chosen(["llama"]), change.SUSPEND)
    said = capsys.readouterr().err
    assert "llama has finished already (NoProgress); nothing to change." in said
    assert "lockstep retry llama" in said


def test_cancel_ends_the_debug_hold_of_a_run_that_has_failed_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    kept = sample.failed()
    kept["status"] |= {"leaving": {"nodes": 4, "until": sample.at(600)}, "recovery": {"debugUntil": sample.at(600)}}
    server = with_run(kept)
    change.apply(server, Chosen(["llama"]), change.SUSPEND)
    assert patches(server) == []
    change.apply(server, Chosen(["llama"]), change.CANCEL)
    assert patches(server) == [{"spec": {"cancel": True}}]
    assert capsys.readouterr().out.splitlines()[-1] == "trainingrun.lockstep.dev/llama debug hold ended"


def do(verb: Any, server: CliServer, **more: Any) -> None:
    verb(server, Chosen(["llama"]), **more)


def suspended(raw: dict[str, Any]) -> dict[str, Any]:
    return raw | {"spec": raw["spec"] | {"suspend": True}}


def test_a_run_that_waits_is_held_at_the_version_that_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    server = with_run(sample.pending(), conflicts=2)
    do(hold.hold, server, by_queue=False)
    assert patches(server) == [{"metadata": {"resourceVersion": "7"}, "spec": {"suspend": True}}]
    assert capsys.readouterr().out == "trainingrun.lockstep.dev/llama held\n"


def test_a_run_that_was_admitted_meanwhile_is_not_stopped() -> None:
    with pytest.raises(CliError, match="does not wait, it is Running") as refused:
        do(hold.hold, with_run(sample.pending(), sample.running(), conflicts=1), by_queue=False)
    assert "lockstep suspend llama" in refused.value.remedy


def test_conflicts_without_end_are_said() -> None:
    with pytest.raises(ApiServerError, match="has been modified"):
        do(hold.hold, with_run(sample.pending(), conflicts=99), by_queue=False)


def test_a_held_run_is_released(capsys: pytest.CaptureFixture[str]) -> None:
    server = with_run(suspended(sample.pending(reason="HeldByAdministrator")))
    do(hold.hold, server, by_queue=False)
    assert patches(server) == []
    do(hold.release, server, by_queue=False)
    assert patches(server) == [{"spec": {"suspend": False}}]
    do(hold.release, with_run(sample.pending()), by_queue=False)
    said = capsys.readouterr()
    assert said.err == "llama is held already.\nllama is not held.\n"


def test_what_an_administrator_holds_only_they_release() -> None:
    server = with_run(sample.pending(reason="HeldByAdministrator"))
    with pytest.raises(CliError, match="an administrator holds llama back") as refused:
        do(hold.release, server, by_queue=False)
    assert "--queue" in refused.value.remedy
    assert patches(server) == []


def test_an_administrator_holds_by_the_queue_and_loses_nothing_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    server = with_run(sample.running(), conflicts=1, held=["other/run"])
    do(hold.hold, server, by_queue=True)
    wanted = {"metadata": {"resourceVersion": "3"}, "spec": {"heldRuns": ["other/run", "team/llama"]}}
    assert patches(server) == [wanted]
    server = with_run(sample.pending(), held=["team/llama", "other/run"])
    do(hold.hold, server, by_queue=True)
    assert patches(server) == []
    do(hold.release, server, by_queue=True)
    assert patches(server)[0]["spec"] == {"heldRuns": ["other/run"]}
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "trainingqueue.lockstep.dev/default holds team/llama",
        "trainingqueue.lockstep.dev/default holds team/llama no longer",
    ]
    assert said.err == "queue default holds team/llama already.\n"


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        (ApiServerError(404, "not found", name="default"), "there is no TrainingQueue default", "create it first"),
        (ApiServerError(403, "forbidden", "ask for the role edit"), "forbidden", "without --queue"),
    ],
)
def test_a_queue_that_cannot_be_changed_is_said_with_the_remedy(
    error: ApiServerError, message: str, remedy: str
) -> None:
    server = with_run(sample.pending(), refusals={"get trainingqueues": error})
    with pytest.raises(CliError, match=message) as refused:
        do(hold.hold, server, by_queue=True)
    assert remedy in refused.value.remedy


def test_a_gang_is_requeued_by_a_new_token_and_what_waits_is_not() -> None:
    server = with_run(sample.running())
    do(hold.requeue, server)
    do(hold.requeue, server)
    tokens = {patch["metadata"]["annotations"][names.ANNOTATION_REQUEUE_REQUEST] for patch in patches(server)}
    assert len(tokens) == 2
    with pytest.raises(CliError, match="has no nodes to give back"):
        do(hold.requeue, with_run(sample.pending()))


def test_what_has_finished_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    server = with_run(sample.failed())
    do(hold.hold, server, by_queue=False)
    do(hold.requeue, server)
    assert patches(server) == []
    assert "has finished already" in capsys.readouterr().err


def with_array(**status: Any) -> CliServer:
    spec = {"indices": "0-9", "template": {"spec": sample.SPEC}}
    array = sample.run("sweep", status=status) | {"kind": "TrainingRunSet", "spec": spec}
    return CliServer({"trainingrunsets/sweep": array})


@pytest.mark.parametrize(("verb", "suspend", "word"), [(hold.hold, True, "held"), (hold.release, False, "released")])
def test_an_array_is_held_and_released_whole(
    verb: Any, suspend: bool, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = with_array()
    verb(server, Chosen(["sweep"]), by_queue=False)
    assert patches(server) == [{"spec": {"suspend": suspend}}]
    assert capsys.readouterr().out == f"trainingrunset.lockstep.dev/sweep {word}\n"


def run_of_the_array(server: CliServer, raw: dict[str, Any]) -> None:
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "name": "sweep", "uid": sample.UID}
    about = {"name": "sweep-0", "uid": "u", "labels": {names.LABEL_SET: "sweep"}, "ownerReferences": [owner]}
    server.objects["trainingruns/sweep-0"] = raw | {"metadata": raw["metadata"] | about}


def test_an_array_whose_runs_all_wait_is_held() -> None:
    server = with_array(state="Pending", indices={"active": "0-3"})
    run_of_the_array(server, sample.pending())
    hold.hold(server, Chosen(["sweep"]), by_queue=False)
    assert patches(server) == [{"spec": {"suspend": True}}]


@pytest.mark.parametrize(("running", "raw"), [(1, sample.pending()), (0, sample.running())])
def test_an_array_that_has_begun_is_not_stopped_by_hold(running: int, raw: dict[str, Any]) -> None:
    server = with_array(state="Running", indices={"active": "0-3"}, counts={"running": running})
    run_of_the_array(server, raw)
    with pytest.raises(CliError, match="have begun: hold would stop them") as refused:
        hold.hold(server, Chosen(["sweep"]), by_queue=False)
    assert "maxRunning: 0" in refused.value.remedy
    assert not patches(server)
