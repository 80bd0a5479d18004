"""Holding, releasing and requeueing: what is patched, and what is refused in whose words."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lockstep.api.base import names
from lockstep.cli.actions import change, hold
from lockstep.cli.client import Cluster
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.options import Chosen
from support import sample_runs as sample


class Server:
    """One run and one queue; ``conflicts`` patches meet a newer version."""

    namespace = "team"

    def __init__(self, run: dict[str, Any], conflicts: int = 0, held: list[str] | None = None) -> None:
        self.run = run
        self.conflicts = conflicts
        self.queue = {
            "apiVersion": "lockstep.dev/v1alpha1",
            "kind": "TrainingQueue",
            "metadata": {"name": "default", "resourceVersion": "3"},
            "spec": {"heldRuns": held} if held is not None else {},
        }
        self.patches: list[dict[str, Any]] = []
        self.refusal: ApiServerError | None = None

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        if "/trainingqueues/" in path and self.refusal is not None:
            raise self.refusal
        return self.queue if "/trainingqueues/" in path else self.run

    def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiServerError(409, "the object has been modified", name="x")
        self.patches.append(patch)
        return self.get(path)


class EndsMeanwhile(Server):
    """The run ends between the look and the write, which the server then refuses."""

    def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.run = sample.failed()
        raise ApiServerError(422, "the run has ended", name="llama")


def test_a_run_that_ends_while_it_is_suspended_is_told_to_have_ended(capsys: pytest.CaptureFixture[str]) -> None:
    change.apply(cast(Cluster, EndsMeanwhile(sample.running())), Chosen(["llama"]), change.SUSPEND)
    said = capsys.readouterr().err
    assert "llama has finished already (NoProgress); nothing to change." in said
    assert "lockstep retry llama" in said


def do(verb: Any, server: Server, **more: Any) -> None:
    verb(cast(Cluster, server), Chosen(["llama"]), **more)


def suspended(raw: dict[str, Any]) -> dict[str, Any]:
    return raw | {"spec": raw["spec"] | {"suspend": True}}


def test_a_run_that_waits_is_held_at_the_version_that_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(sample.pending(), conflicts=2)
    do(hold.hold, server, by_queue=False)
    assert server.patches == [{"metadata": {"resourceVersion": "7"}, "spec": {"suspend": True}}]
    assert capsys.readouterr().out == "trainingrun.lockstep.dev/llama held\n"


def test_a_run_that_was_admitted_meanwhile_is_not_stopped() -> None:
    class Admitting(Server):
        def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
            self.run = sample.running()
            raise ApiServerError(409, "the object has been modified", name="x")

    with pytest.raises(CliError, match="does not wait, it is Running") as refused:
        do(hold.hold, Admitting(sample.pending()), by_queue=False)
    assert "lockstep suspend llama" in refused.value.remedy


def test_conflicts_without_end_are_said() -> None:
    with pytest.raises(ApiServerError, match="has been modified"):
        do(hold.hold, Server(sample.pending(), conflicts=99), by_queue=False)


def test_a_held_run_is_released(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(suspended(sample.pending(reason="HeldByAdministrator")))
    do(hold.hold, server, by_queue=False)
    assert server.patches == []
    do(hold.release, server, by_queue=False)
    assert server.patches == [{"spec": {"suspend": False}}]
    do(hold.release, Server(sample.pending()), by_queue=False)
    said = capsys.readouterr()
    assert said.err == "llama is held already.\nllama is not held.\n"


def test_what_an_administrator_holds_only_they_release() -> None:
    server = Server(sample.pending(reason="HeldByAdministrator"))
    with pytest.raises(CliError, match="an administrator holds llama back") as refused:
        do(hold.release, server, by_queue=False)
    assert "--queue" in refused.value.remedy
    assert server.patches == []


def test_an_administrator_holds_by_the_queue_and_loses_nothing_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(sample.running(), conflicts=1, held=["other/run"])
    do(hold.hold, server, by_queue=True)
    wanted = {"metadata": {"resourceVersion": "3"}, "spec": {"heldRuns": ["other/run", "team/llama"]}}
    assert server.patches == [wanted]
    server = Server(sample.pending(), held=["team/llama", "other/run"])
    do(hold.hold, server, by_queue=True)
    assert server.patches == []
    do(hold.release, server, by_queue=True)
    assert server.patches[0]["spec"] == {"heldRuns": ["other/run"]}
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
    server = Server(sample.pending())
    server.refusal = error
    with pytest.raises(CliError, match=message) as refused:
        do(hold.hold, server, by_queue=True)
    assert remedy in refused.value.remedy


def test_a_gang_is_requeued_by_a_new_token_and_what_waits_is_not() -> None:
    server = Server(sample.running())
    do(hold.requeue, server)
    do(hold.requeue, server)
    tokens = {patch["metadata"]["annotations"][names.ANNOTATION_REQUEUE_REQUEST] for patch in server.patches}
    assert len(tokens) == 2
    with pytest.raises(CliError, match="has no nodes to give back"):
        do(hold.requeue, Server(sample.pending()))


def test_what_has_finished_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(sample.failed())
    do(hold.hold, server, by_queue=False)
    do(hold.requeue, server)
    assert server.patches == []
    assert "has finished already" in capsys.readouterr().err


class ArrayServer:
    """No run, and one array."""

    namespace = "team"

    def __init__(self, **status: Any) -> None:
        spec = {"indices": "0-9", "template": {"spec": sample.SPEC}}
        metadata = {"name": "sweep", "namespace": "team", "uid": "u", "resourceVersion": "1"}
        metadata["creationTimestamp"] = sample.at(60)
        self.array = {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRunSet", "metadata": metadata, "spec": spec,
            "status": status,
        }  # fmt: skip
        self.patches: list[dict[str, Any]] = []

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        if path.endswith("/trainingrunsets/sweep"):
            return self.array
        raise ApiServerError(404, "not found", name="sweep")

    def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.patches.append(patch)
        return self.array


@pytest.mark.parametrize(("verb", "suspend", "word"), [(hold.hold, True, "held"), (hold.release, False, "released")])
def test_an_array_is_held_and_released_whole(
    verb: Any, suspend: bool, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ArrayServer()
    verb(cast(Cluster, server), Chosen(["sweep"]), by_queue=False)
    assert server.patches == [{"spec": {"suspend": suspend}}]
    assert capsys.readouterr().out == f"trainingrunset.lockstep.dev/sweep {word}\n"


def test_an_array_that_has_begun_is_not_stopped_by_hold() -> None:
    server = ArrayServer(state="Running", indices={"active": "0-3"})
    with pytest.raises(CliError, match="have begun: hold would stop them") as refused:
        hold.hold(cast(Cluster, server), Chosen(["sweep"]), by_queue=False)
    assert "maxRunning: 0" in refused.value.remedy
    assert not server.patches
