"""A run that ended is gone on from on the page: what is sent, by whom, how often, and what is told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.model.own_objects import parse_run
from support import sample_runs
from support.web_visitor import RUN, Visited, visited


@pytest.fixture
async def site() -> AsyncIterator[Visited]:
    async with visited() as found:
        yield found


ENDED = "ui/api/runs/research/gpt2-debug"
RUNS_PATH = "/apis/lockstep.dev/v1alpha1/namespaces/research/trainingruns"
OLD = f"{RUNS_PATH}/gpt2-debug"
CODE = "/api/v1/namespaces/research/configmaps/gpt2-code-ab1cd"


async def retry(site: Visited, name: str = "gpt2-debug-r2", token: str = "admin", **begin: object) -> Any:
    return await site.act("retry", token, "uid-ended", ENDED, name, begin)


def mounts_code(site: Visited) -> None:
    """The ended run has its code from a ConfigMap, which goes with it."""
    volume = {"name": "code", "mountPath": "/code"}
    volume["projected"] = {"sources": [{"configMap": {"name": "gpt2-code-ab1cd"}}]}  # type: ignore[assignment]
    site.api.objects[OLD]["spec"] = site.api.objects[OLD]["spec"] | {"volumes": [volume]}
    owner = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "name": "gpt2-debug", "uid": "uid-ended"}
    about = {"name": "gpt2-code-ab1cd", "resourceVersion": "5", "ownerReferences": [owner]}
    site.api.objects[CODE] = {"metadata": about | {"labels": {"lockstep.dev/code": "true"}}}


async def test_a_run_that_ended_is_gone_on_from_by_the_viewers_token(site: Visited) -> None:
    site.api.objects[OLD]["metadata"]["labels"] = {"team": "nlp"}
    _, body = await site.get(f"{ENDED}/actions")
    [offered] = body["actions"]
    assert (offered["action"], offered["name"]) == ("retry", "gpt2-debug-r2")
    assert "goes on from step 400 of gpt2-debug, in the shared tier" in offered["words"][0]
    assert await retry(site) == (200, "gpt2-debug-r2 created")
    [(read, path, _, _), (create, place, headers, made)] = site.api.asked
    assert (read, path, create, place) == ("GET", OLD, "POST", RUNS_PATH)
    assert {each[2]["Authorization"] for each in site.api.asked} == {"Bearer admin"}
    assert not {name for name in headers if name.startswith("Impersonate") or name == "Cookie"}
    assert made["spec"] == sample_runs.SPEC | {
        "checkpoint": {"shared": {"claimName": "lustre"}, "start": {"run": "gpt2-debug"}}
    }
    about = made["metadata"]
    assert (about["name"], about["namespace"], about["labels"]) == ("gpt2-debug-r2", "research", {"team": "nlp"})
    assert about["annotations"]["lockstep.dev/user"] == "ada"
    assert "uid-ended" in about["annotations"]["lockstep.dev/previous"]


async def test_a_run_that_has_not_ended_is_not_offered_a_retry_and_gets_none(site: Visited) -> None:
    _, body = await site.get(f"{RUN}/actions")
    assert "retry" not in [each["action"] for each in body["actions"]]
    assert (await site.act("retry", name="llama-70b-r2"))[0] == 409
    assert site.api.asked == []


async def test_what_was_ended_on_the_page_and_runs_by_its_object_is_not_gone_on_from(site: Visited) -> None:
    raw = sample_runs.running()
    site.api.objects[OLD] = raw | {"metadata": raw["metadata"] | {"name": "gpt2-debug", "uid": "uid-ended"}}
    assert (await retry(site))[0] == 409
    assert [each[0] for each in site.api.asked] == ["GET"]


async def test_a_namesake_that_was_made_since_is_not_gone_on_from(site: Visited) -> None:
    site.api.objects[OLD]["metadata"]["uid"] = "uid-of-a-namesake"
    status, words = await retry(site)
    assert (status, "another run now" in words) == (409, True)
    assert [each[0] for each in site.api.asked] == ["GET"]


async def test_who_may_not_create_runs_is_not_offered_a_retry_and_refused_by_the_api_server(site: Visited) -> None:
    assert (await site.get(f"{ENDED}/actions", "tenant"))[1]["actions"] == []
    site.api.may["tenant"] = frozenset({"logs"})
    status, words = await retry(site, token="tenant")
    assert (status, "you may not create trainingruns" in words) == (403, True)


async def test_asked_twice_it_makes_one_run(site: Visited) -> None:
    """The operator has not seen the first one yet, or has."""
    exists = {"message": 'trainingruns "gpt2-debug-r2" already exists', "reason": "AlreadyExists"}
    site.api.answer = 409, exists
    status, words = await retry(site)
    assert (status, "there is a run gpt2-debug-r2" in words) == (409, True)
    site.cluster.runs.append(replace(site.cluster.runs[0], name="gpt2-debug-r2", uid="uid-made"))
    site.api.asked.clear()
    assert (await retry(site))[0] == 409
    assert site.api.asked == []
    assert (await site.get(f"{ENDED}/actions"))[1]["actions"][0]["name"] == "gpt2-debug-r3"


@pytest.mark.parametrize("name", ["", "gpt2-debug", "another", "x" * 300])
async def test_no_run_is_made_of_a_name_that_was_not_confirmed(site: Visited, name: str) -> None:
    assert (await retry(site, name))[0] == 409
    assert site.api.asked == []


async def test_code_that_went_along_goes_with_the_last_run_that_mounts_it(site: Visited) -> None:
    mounts_code(site)
    assert await retry(site) == (200, "gpt2-debug-r2 created")
    _, _, (_, _, read, _), (change, path, headers, patch) = site.api.asked
    assert "PartialObjectMetadata" in read["Accept"]  # a MiB of code is not read
    assert (change, path, headers["Authorization"]) == ("PATCH", CODE, "Bearer admin")
    assert [each["name"] for each in patch["metadata"]["ownerReferences"]] == ["gpt2-debug", "gpt2-debug-r2"]
    assert patch["metadata"]["ownerReferences"][1]["uid"] == "uid-made"
    assert patch["metadata"]["resourceVersion"] == "5"


async def test_code_that_cannot_be_kept_is_told_and_the_run_is_made(site: Visited) -> None:
    mounts_code(site)
    del site.api.objects[CODE]
    status, words = await retry(site)
    assert (status, "ConfigMap gpt2-code-ab1cd, goes when gpt2-debug is deleted" in words) == (200, True)


async def test_a_config_map_that_is_no_code_is_left_alone(site: Visited) -> None:
    mounts_code(site)
    del site.api.objects[CODE]["metadata"]["labels"]
    assert await retry(site) == (200, "gpt2-debug-r2 created")
    assert [each[0] for each in site.api.asked] == ["GET", "POST", "GET"]


async def test_what_cannot_be_gone_on_from_says_so_before_and_makes_nothing(site: Visited) -> None:
    local = {"latest": [{"tier": "local", "step": 7, "path": "/local-checkpoints/x/step-7"}]}
    site.api.objects[OLD]["status"]["checkpoint"] = local
    assert "--fresh begins at step 0" in (await retry(site))[1]
    assert [each[0] for each in site.api.asked] == ["GET"]
    index = next(i for i, run in enumerate(site.cluster.runs) if run.name == "gpt2-debug")
    site.cluster.runs[index] = parse_run(site.api.objects[OLD])
    [offered] = (await site.get(f"{ENDED}/actions"))[1]["actions"]
    assert (offered["name"], "on its nodes' own disks" in offered["words"][0]) == ("", True)


@pytest.mark.parametrize(
    ("answer", "status"), [((422, {"message": "spec is invalid"}), 422), ((500, {"message": "etcd"}), 504)]
)
async def test_what_the_api_server_says_of_a_new_run_is_told(site: Visited, answer: Any, status: int) -> None:
    site.api.answer = answer
    assert (await retry(site))[0] == status
    assert [each[0] for each in site.api.asked] == ["GET", "POST"]  # nothing is tried twice


@pytest.mark.parametrize(
    ("begin", "query", "told", "start"),
    [
        ({}, "", ("goes on from step 400", "12 steps since step 400"), {"run": "gpt2-debug"}),
        (
            {"step": 300},
            "step=300",
            ("goes on from step 300", "112 steps since step 300"),
            {"run": "gpt2-debug", "step": 300},
        ),
        ({"fresh": True}, "fresh=true", ("at step 0. gpt2-debug and its saves stay", "412 steps"), {"mode": "Fresh"}),
    ],
)
async def test_where_it_begins_may_be_chosen_and_what_is_lost_then_is_told_before(
    site: Visited, begin: dict[str, object], query: str, told: tuple[str, ...], start: dict[str, object]
) -> None:
    [offered] = (await site.get(f"{ENDED}/actions?{query}"))[1]["actions"]
    assert (offered["name"], offered["begins"]) == ("gpt2-debug-r2", True)
    assert all(words in " ".join(offered["words"]) for words in told)
    assert await retry(site, **begin) == (200, "gpt2-debug-r2 created")
    assert site.api.asked[1][3]["spec"]["checkpoint"]["start"] == start


async def test_what_only_a_choice_goes_on_from_is_offered_with_it(site: Visited) -> None:
    local = {"latest": [{"tier": "local", "step": 7, "path": "/local-checkpoints/x/step-7"}]}
    site.api.objects[OLD]["status"]["checkpoint"] = local
    index = next(i for i, run in enumerate(site.cluster.runs) if run.name == "gpt2-debug")
    site.cluster.runs[index] = parse_run(site.api.objects[OLD])
    for query, name in (("", ""), ("?step=7", ""), ("?fresh=true", "gpt2-debug-r2")):
        [offered] = (await site.get(f"{ENDED}/actions{query}"))[1]["actions"]
        assert (offered["name"], offered["begins"]) == (name, True)


@pytest.mark.parametrize("query", ["step=-1", "step=x", "step=²", "step=" + "9" * 16, "step=1&fresh=true"])
async def test_a_step_that_is_none_is_asked_about_in_vain(site: Visited, query: str) -> None:
    assert (await site.get(f"{ENDED}/actions?{query}"))[0] == 400


@pytest.mark.parametrize("begin", [{"step": -1}, {"step": "1"}, {"step": 1e300}, {"step": 1, "fresh": True}])
async def test_no_run_is_made_that_would_begin_nowhere(site: Visited, begin: dict[str, object]) -> None:
    assert (await retry(site, **begin))[0] == 400
    assert site.api.asked == []
