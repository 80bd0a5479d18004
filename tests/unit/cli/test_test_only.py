"""`submit --test-only` asks, tells the answer, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli.errors import ApiServerError, CliError, ExitCode
from lockstep.cli.submission import code, submit, test_only
from lockstep.present import code_maps
from support import sample_runs as sample
from support.cli_server import USER, CliServer
from support.sample_runs import NOW

MANIFEST: dict[str, Any] = {"metadata": {"name": "llama", "annotations": {"mine": "yes"}}, "spec": sample.SPEC}


def answered(**fields: Any) -> dict[str, Any]:
    answer = {"at": sample.at(0), "observedGeneration": 1, "priority": 12, **fields}
    return {"conditions": [sample.ACCEPTED], "testOnly": answer}


def ask(server: CliServer, seconds: float = 5.0) -> dict[str, Any]:
    return test_only.ask(server, MANIFEST, seconds=seconds)


def test_it_is_asked_under_a_name_of_its_own_and_deleted_with_the_answer() -> None:
    statuses = [{"conditions": [sample.ACCEPTED]}, answered(start=sample.at(0), nodes=["gpu-1"])]
    server = CliServer(statuses=statuses)
    raw = ask(server)
    assert raw["status"]["testOnly"]["nodes"] == ["gpu-1"]
    (body,) = server.created
    assert body["metadata"]["generateName"] == "llama-test-"
    assert body["metadata"]["annotations"] == {"mine": "yes", names.ANNOTATION_TEST_ONLY: "true"}
    assert body["spec"] == sample.SPEC
    assert server.deleted == [body["metadata"]["uid"]]
    assert MANIFEST["metadata"]["name"] == "llama"


@pytest.mark.parametrize(("sent", "stays"), [(code.Sent(), True), (code.Sent(name="llama-code-ab1cd"), False)])
def test_with_the_question_goes_the_code_that_came_with_it_and_no_other(sent: code.Sent, stays: bool) -> None:
    """A retry that was cut off has left code that is nobody's."""
    carried = {
        "metadata": {
            "name": "llama-code-ab1cd",
            "uid": "c",
            "resourceVersion": "1",
            "labels": {code_maps.LABEL: "true"},
        }
    }
    sources = {"sources": [{"configMap": {"name": "llama-code-ab1cd"}}]}
    volumes = [{"name": "code", "mountPath": "/code", "projected": sources}]
    server = CliServer({"configmaps/llama-code-ab1cd": carried}, statuses=[answered(start=sample.at(0))])
    about = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND}
    test_only.ask(server, MANIFEST | about | {"spec": sample.SPEC | {"volumes": volumes}}, sent)
    assert len(server.deleted) == 1
    assert ("configmaps/llama-code-ab1cd" in server.objects) is stays
    assert not sent.needed


@pytest.mark.parametrize("name", ["a" * 40, "x", "a-b-c-d-e-f-g-h-i-j-k-l-m-n-o-p"])
def test_the_name_fits_whatever_the_run_is_called(name: str) -> None:
    generated = test_only.question({"metadata": {"name": name}})["metadata"]["generateName"]
    assert len(generated) + 5 <= names.MAX_RUN_NAME
    assert "--" not in generated


def test_an_answer_about_an_earlier_spec_is_none() -> None:
    assert not test_only.is_answered(sample.run(status=answered(observedGeneration=0)))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"conditions": [sample.condition("Accepted", "False", "PodRefused", "no such account")]}, "no such account"),
        (
            {"conditions": [sample.ACCEPTED, sample.condition("Finished", "True", "Cancelled")]},
            "has ended the question",
        ),
    ],
)
def test_a_refusal_is_told_and_nothing_stays(status: dict[str, Any], words: str) -> None:
    server = CliServer(statuses=[status])
    with pytest.raises(CliError, match=words):
        ask(server)
    assert len(server.deleted) == 1


def test_an_operator_that_does_not_answer_is_said_and_nothing_stays() -> None:
    server = CliServer()
    with pytest.raises(CliError, match="has not said within 0 s") as refused:
        ask(server, 0.05)
    assert refused.value.exit_code is ExitCode.TIMED_OUT
    assert len(server.deleted) == 1


def told(**fields: Any) -> list[str]:
    return list(test_only.answer_lines("llama", sample.run(status=answered(**fields)), NOW))


def test_a_start_at_once_names_the_nodes() -> None:
    assert told(start=sample.at(0), nodes=["gpu-1", "gpu-2", "gpu-3", "gpu-4"]) == [
        "llama would start now on gpu-1 gpu-2 gpu-3 gpu-4",
        "  with 12 points of priority in queue default",
    ]


def test_a_later_start_says_what_it_rests_on_and_what_lacks() -> None:
    rests, lacks = "every run uses its whole time limit", "needs 4 nodes, 1 fit"
    lines = told(start=sample.at(-2400), nodes=["gpu-1"], reason="Resources", message=lacks, assumption=rests)
    assert lines[0].startswith("llama would start in 40m (")
    assert lines[0].endswith(") on gpu-1 and 3 more")
    assert lines[1:3] == [f"  if {rests}", f"  Resources: {lacks}"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"timeLimit": 240, "endAfter": 180}, "  its time: 4m with its nodes; after 3m its ranks are told to end"),
        (
            {"timeLimit": 1800, "saveAfter": 1200, "endAfter": 1740},
            (
                "  its time: 30m with its nodes; after 20m all ranks are asked to save, if its program asks for saves "
                "(onTimeLimit.leadTime; half of the limit at most), and end once they have; after 29m they are told to "
                "end"
            ),
        ),
    ],
)
def test_what_is_done_about_its_time_limit_is_said_before(answer: dict[str, Any], words: str) -> None:
    assert told(start=sample.at(0), nodes=["gpu-1"], **answer)[-1] == words


def test_a_start_that_nobody_knows_and_one_that_never_comes_are_told_apart() -> None:
    lines = told(reason="Resources", message="needs 4 nodes", assumption="not known: it rests on a run")
    assert lines[0] == "llama would start at a time that is not known: it rests on a run"
    with pytest.raises(CliError, match="would not start: Placement: needs 4 nodes, 2 exist"):
        told(reason="Placement", message="needs 4 nodes, 2 exist")


def test_the_user_is_named_as_the_api_server_knows_them_unless_the_manifest_says() -> None:
    mine: dict[str, Any] = {"metadata": {}}
    theirs: dict[str, Any] = {"metadata": {"annotations": {names.ANNOTATION_USER: "bob"}}}
    submit.name_user(CliServer(), [mine, theirs])
    assert mine["metadata"]["annotations"] == {names.ANNOTATION_USER: USER}
    assert theirs["metadata"]["annotations"] == {names.ANNOTATION_USER: "bob"}


def test_without_a_review_the_user_is_left_out() -> None:
    manifest: dict[str, Any] = {"metadata": {"name": "a"}}
    server = CliServer(refusals={"selfsubjectreviews": ApiServerError(404, "no such resource")})
    submit.name_user(server, [manifest])
    assert manifest == {"metadata": {"name": "a"}}
