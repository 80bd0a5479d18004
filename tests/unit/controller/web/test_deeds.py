"""What is done through the page by the viewer's own token: rights, forgery, limits, and what is said."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ProgressStatus
from lockstep.controller.web import deeds
from support.web_visitor import RUN, UID, Visited, visited


@pytest.fixture
async def site() -> AsyncIterator[Visited]:
    async with visited() as found:
        yield found


ACTIONS = ("cancel", "suspend", "checkpoint")


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_is_written_with_the_viewers_token_and_no_right_of_the_operators(
    site: Visited, action: str
) -> None:
    assert (await site.act(action))[0] == 200
    [(method, path, headers, body)] = site.api.asked
    assert (method, path) == ("PATCH", "/apis/lockstep.dev/v1alpha1/namespaces/research/trainingruns/llama-70b")
    assert headers["Authorization"] == "Bearer admin"
    assert not {name for name in headers if name.startswith("Impersonate") or name == "Cookie"}
    assert body["metadata"]["uid"] == UID  # and so no later run of the same name
    specs = {"cancel": {"cancel": True}, "suspend": {"suspend": True}}
    assert body.get("spec") == specs.get(action)
    assert bool(body["metadata"].get("annotations")) == (action == "checkpoint")


async def test_a_suspended_run_is_resumed(site: Visited) -> None:
    index, run = next((i, run) for i, run in enumerate(site.cluster.runs) if run.name == "llama-70b")
    assert run.spec is not None
    site.cluster.runs[index] = replace(run, spec=changed(run.spec, suspend=True))
    assert (await site.act("suspend"))[0] == 409
    assert (await site.act("resume")) == (200, "llama-70b resumed")
    assert site.api.asked[0][3]["spec"] == {"suspend": False}


@pytest.mark.parametrize("action", ACTIONS)
async def test_who_may_not_change_runs_is_refused_by_the_api_server(site: Visited, action: str) -> None:
    status, words = await site.act(action, token="tenant")
    assert (status, "role edit" in words) == (403, True)
    assert site.api.asked[0][2]["Authorization"] == "Bearer tenant"


async def test_a_token_for_the_page_alone_changes_nothing_and_stays_signed_in(site: Visited) -> None:
    site.api.may = {}
    status, words = await site.act("cancel")
    assert (status, "is for the page alone, or has expired" in words) == (403, True)  # 401 would sign the viewer out


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Lockstep_Deed": ""},
        {"X_Lockstep_Deed": "yes"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
    ],
)
async def test_what_another_site_has_a_browser_send_does_nothing(site: Visited, headers: dict[str, str]) -> None:
    assert (await site.act("cancel", **headers))[0] == 403
    assert (site.api.asked, site.cluster.reviewer.asked) == ([], [])


async def test_another_site_gets_no_consent_to_send_the_header(site: Visited) -> None:
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    asks["Access-Control-Request-Headers"] = deeds.HEADER
    async with site.session.options(f"{site.url}/{RUN}/actions/cancel", headers=asks) as answer:
        assert answer.status == 405
        assert not [name for name in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    ("action", "uid", "run", "status"),
    [
        ("cancel", "uid-of-a-namesake", RUN, 409),
        ("resume", UID, RUN, 409),  # it is not suspended
        ("delete", UID, RUN, 404),
        ("cancel", "uid-ended", "ui/api/runs/research/gpt2-debug", 409),
        ("cancel", UID, "ui/api/runs/research/none", 404),
        ("cancel", "x" * 2000, RUN, 400),
    ],
)
async def test_what_makes_no_sense_is_not_sent(site: Visited, action: str, uid: str, run: str, status: int) -> None:
    assert (await site.act(action, uid=uid, run=run))[0] == status
    assert site.api.asked == []


async def test_a_run_that_may_not_be_seen_is_not_changed(site: Visited) -> None:
    assert (await site.act("cancel", "tenant", "uid-products-moe-16x", "ui/api/runs/products/moe-16x"))[0] == 403
    assert site.api.asked == []


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ((403, {"message": 'admission webhook "quota" denied the request: not on Fridays'}), 403, "not on Fridays"),
        ((422, {"message": "metadata.uid: Invalid value: field is immutable"}), 409, "another run now"),
        ((422, {"message": "spec is invalid"}), 422, "spec is invalid"),
        ((429, {"message": "slow down"}), 503, "busy"),
        ((500, {"message": "etcd"}), 504, "may have been done"),
    ],
)
async def test_what_the_api_server_answers_is_told(site: Visited, answer: Any, status: int, words: str) -> None:
    site.api.answer = answer
    got, said = await site.act("cancel")
    assert (got, words in said) == (status, True)
    assert len(site.api.asked) == 1  # nothing is tried twice


async def test_an_api_server_that_is_away_is_told(site: Visited) -> None:
    site.api.url = "http://127.0.0.1:1"
    assert (await site.act("cancel"))[0] == 503


async def test_one_viewer_does_not_flood_the_api_server_with_changes(site: Visited) -> None:
    answers = [(await site.act("checkpoint"))[0] for _ in range(int(deeds.BURST) + 2)]
    assert answers[-1] == 429
    assert len(site.api.asked) == int(deeds.BURST)


async def test_actions_are_offered_to_who_may_with_what_they_cost(site: Visited) -> None:
    _, body = await site.get(f"{RUN}/actions")
    assert [each["action"] for each in body["actions"]] == ["checkpoint", "suspend", "cancel"]
    assert (body["uid"], body["logs"]) == (UID, True)
    _, body = await site.get(f"{RUN}/actions", "tenant")
    assert (body["actions"], body["logs"]) == ([], False)


async def test_who_takes_the_nodes_is_told_as_far_as_one_may_see_them(site: Visited) -> None:
    site.cluster.reviewer.admit("editor", "eva", "products", "edit")
    for token, named in (("admin", True), ("editor", False)):
        _, body = await site.get("ui/api/runs/products/search-ranker/actions", token)
        assert ("llama-405b" in str(body)) is named


async def test_what_is_told_of_a_run_that_reports_no_step_is_since_when(site: Visited) -> None:
    run = site.cluster.runs[0]
    status = changed(run.status, progress=ProgressStatus())
    site.cluster.runs[0] = replace(run, status=status)
    site.cluster.reports[UID] = {slot: replace(each, progress=None) for slot, each in site.cluster.reports[UID].items()}
    _, body = await site.get(f"{RUN}/actions")
    [words] = [" ".join(each["words"]) for each in body["actions"] if each["action"] == "cancel"]
    assert ("what it did since it saved step" in words, "no step is lost" in words) == (True, False)
