"""What is done and read through the page by the viewer's own token: rights, forgery, limits, and what is said."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.config import ConfigException

from lockstep.api.base.changes import changed
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.kube.credentials import Credentials, load_credentials
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.web import deeds, logs
from lockstep.controller.web.server import WebPage
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.tls import new_authority
from lockstep.core.model.assignment import released
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import StackReport
from support import sample_runs
from support.manual_clock import ManualClock
from support.web_site import ApiServer, Cluster, busy_cluster, report

RUN = "ui/api/runs/research/llama-70b"
UID = "uid-research-llama-70b"


class Site:
    """The page in front of an API server, and somebody who asks for it."""

    def __init__(self, cluster: Cluster, page: WebPage, url: str, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.page = page
        self.url = url
        self.session = session

    async def act(
        self, action: str, token: str = "admin", uid: str = UID, run: str = RUN, name: str = "", **headers: str
    ) -> Any:
        """Status and words. ``name``: of the run that a retry is to make."""
        sent = {"X-Lockstep-Token": token, deeds.HEADER: "1"} | {k.replace("_", "-"): v for k, v in headers.items()}
        sent = {name: value for name, value in sent.items() if value}
        async with self.session.post(
            f"{self.url}/{run}/actions/{action}", json={"uid": uid, "name": name}, headers=sent
        ) as answer:
            return answer.status, (await answer.json())["message"]

    async def get(self, path: str, token: str = "admin") -> Any:
        """Status and body."""
        async with self.session.get(f"{self.url}/{path}", headers={"X-Lockstep-Token": token}) as answer:
            return answer.status, await answer.json()

    def follow(self, rank: int | str = 0, token: str = "admin") -> Any:
        """A log as it comes."""
        return self.session.get(f"{self.url}/{RUN}/ranks/{rank}/log", headers={"X-Lockstep-Token": token})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with served() as found:
        yield found


@asynccontextmanager
async def served() -> AsyncIterator[Site]:
    cluster = busy_cluster(ManualClock(sample_runs.NOW), 64)
    async with cluster.api.served():
        page = cluster.page()
        listener = await Listener.open(page.application(), "127.0.0.1", 0, None, page.connections)
        async with aiohttp.ClientSession() as session:
            yield Site(cluster, page, f"http://127.0.0.1:{listener.port}", session)
        await listener.close()


# -- actions ----------------------------------------------------------------------------------------

ACTIONS = ("cancel", "suspend", "checkpoint")


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_is_written_with_the_viewers_token_and_no_right_of_the_operators(
    site: Site, action: str
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


async def test_a_suspended_run_is_resumed(site: Site) -> None:
    index, run = next((i, run) for i, run in enumerate(site.cluster.runs) if run.name == "llama-70b")
    assert run.spec is not None
    site.cluster.runs[index] = replace(run, spec=changed(run.spec, suspend=True))
    assert (await site.act("suspend"))[0] == 409
    assert (await site.act("resume")) == (200, "llama-70b resumed")
    assert site.api.asked[0][3]["spec"] == {"suspend": False}


@pytest.mark.parametrize("action", ACTIONS)
async def test_who_may_not_change_runs_is_refused_by_the_api_server(site: Site, action: str) -> None:
    status, words = await site.act(action, token="tenant")
    assert (status, "role edit" in words) == (403, True)
    assert site.api.asked[0][2]["Authorization"] == "Bearer tenant"


async def test_a_token_for_the_page_alone_changes_nothing_and_stays_signed_in(site: Site) -> None:
    site.api.may = {}
    status, words = await site.act("cancel")
    assert (status, "opens the page alone" in words) == (403, True)  # 401 would sign the viewer out


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
async def test_what_another_site_has_a_browser_send_does_nothing(site: Site, headers: dict[str, str]) -> None:
    assert (await site.act("cancel", **headers))[0] == 403
    assert (site.api.asked, site.cluster.reviewer.asked) == ([], [])


async def test_another_site_gets_no_consent_to_send_the_header(site: Site) -> None:
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
async def test_what_makes_no_sense_is_not_sent(site: Site, action: str, uid: str, run: str, status: int) -> None:
    assert (await site.act(action, uid=uid, run=run))[0] == status
    assert site.api.asked == []


async def test_a_run_that_may_not_be_seen_is_not_changed(site: Site) -> None:
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
async def test_what_the_api_server_answers_is_told(site: Site, answer: Any, status: int, words: str) -> None:
    site.api.answer = answer
    got, said = await site.act("cancel")
    assert (got, words in said) == (status, True)
    assert len(site.api.asked) == 1  # nothing is tried twice


async def test_an_api_server_that_is_away_is_told(site: Site) -> None:
    site.api.url = "http://127.0.0.1:1"
    assert (await site.act("cancel"))[0] == 503


async def test_one_viewer_does_not_flood_the_api_server_with_changes(site: Site) -> None:
    answers = [(await site.act("checkpoint"))[0] for _ in range(int(deeds.BURST) + 2)]
    assert answers[-1] == 429
    assert len(site.api.asked) == int(deeds.BURST)


async def test_actions_are_offered_to_who_may_with_what_they_cost(site: Site) -> None:
    _, body = await site.get(f"{RUN}/actions")
    assert [each["action"] for each in body["actions"]] == ["checkpoint", "suspend", "cancel"]
    assert (body["uid"], body["logs"]) == (UID, True)
    _, body = await site.get(f"{RUN}/actions", "tenant")
    assert (body["actions"], body["logs"]) == ([], False)


async def test_who_takes_the_nodes_is_told_as_far_as_one_may_see_them(site: Site) -> None:
    site.cluster.reviewer.admit("editor", "eva", "products", "edit")
    for token, named in (("admin", True), ("editor", False)):
        _, body = await site.get("ui/api/runs/products/search-ranker/actions", token)
        assert ("llama-405b" in str(body)) is named


# -- retry ------------------------------------------------------------------------------------------

ENDED = "ui/api/runs/research/gpt2-debug"
RUNS_PATH = "/apis/lockstep.dev/v1alpha1/namespaces/research/trainingruns"
OLD = f"{RUNS_PATH}/gpt2-debug"
CODE = "/api/v1/namespaces/research/configmaps/gpt2-code-ab1cd"


async def retry(site: Site, name: str = "gpt2-debug-r2", token: str = "admin") -> Any:
    return await site.act("retry", token, "uid-ended", ENDED, name)


def mounts_code(site: Site) -> None:
    """The ended run has its code from a ConfigMap, which goes with it."""
    volume = {"name": "code", "mountPath": "/code"}
    volume["projected"] = {"sources": [{"configMap": {"name": "gpt2-code-ab1cd"}}]}  # type: ignore[assignment]
    site.api.objects[OLD]["spec"] = site.api.objects[OLD]["spec"] | {"volumes": [volume]}
    owner = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "name": "gpt2-debug", "uid": "uid-ended"}
    about = {"name": "gpt2-code-ab1cd", "resourceVersion": "5", "ownerReferences": [owner]}
    site.api.objects[CODE] = {"metadata": about | {"labels": {"lockstep.dev/code": "true"}}}


async def test_a_run_that_ended_is_gone_on_from_by_the_viewers_token(site: Site) -> None:
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


async def test_a_run_that_has_not_ended_is_not_offered_a_retry_and_gets_none(site: Site) -> None:
    assert "retry" not in str((await site.get(f"{RUN}/actions"))[1])
    assert (await site.act("retry", name="llama-70b-r2"))[0] == 409
    assert site.api.asked == []


async def test_what_was_ended_on_the_page_and_runs_by_its_object_is_not_gone_on_from(site: Site) -> None:
    raw = sample_runs.running()
    site.api.objects[OLD] = raw | {"metadata": raw["metadata"] | {"name": "gpt2-debug", "uid": "uid-ended"}}
    assert (await retry(site))[0] == 409
    assert [each[0] for each in site.api.asked] == ["GET"]


async def test_a_namesake_that_was_made_since_is_not_gone_on_from(site: Site) -> None:
    site.api.objects[OLD]["metadata"]["uid"] = "uid-of-a-namesake"
    status, words = await retry(site)
    assert (status, "another run now" in words) == (409, True)
    assert [each[0] for each in site.api.asked] == ["GET"]


async def test_who_may_not_create_runs_is_not_offered_a_retry_and_refused_by_the_api_server(site: Site) -> None:
    assert (await site.get(f"{ENDED}/actions", "tenant"))[1]["actions"] == []
    site.api.may["tenant"] = frozenset({"logs"})
    status, words = await retry(site, token="tenant")
    assert (status, "you may not create trainingruns" in words) == (403, True)


async def test_asked_twice_it_makes_one_run(site: Site) -> None:
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
async def test_no_run_is_made_of_a_name_that_was_not_confirmed(site: Site, name: str) -> None:
    assert (await retry(site, name))[0] == 409
    assert site.api.asked == []


async def test_code_that_went_along_goes_with_the_last_run_that_mounts_it(site: Site) -> None:
    mounts_code(site)
    assert await retry(site) == (200, "gpt2-debug-r2 created")
    _, _, (_, _, read, _), (change, path, headers, patch) = site.api.asked
    assert "PartialObjectMetadata" in read["Accept"]  # a MiB of code is not read
    assert (change, path, headers["Authorization"]) == ("PATCH", CODE, "Bearer admin")
    assert [each["name"] for each in patch["metadata"]["ownerReferences"]] == ["gpt2-debug", "gpt2-debug-r2"]
    assert patch["metadata"]["ownerReferences"][1]["uid"] == "uid-made"
    assert patch["metadata"]["resourceVersion"] == "5"


async def test_code_that_cannot_be_kept_is_told_and_the_run_is_made(site: Site) -> None:
    mounts_code(site)
    del site.api.objects[CODE]
    status, words = await retry(site)
    assert (status, "ConfigMap gpt2-code-ab1cd, goes when gpt2-debug is deleted" in words) == (200, True)


async def test_a_config_map_that_is_no_code_is_left_alone(site: Site) -> None:
    mounts_code(site)
    del site.api.objects[CODE]["metadata"]["labels"]
    assert await retry(site) == (200, "gpt2-debug-r2 created")
    assert [each[0] for each in site.api.asked] == ["GET", "POST", "GET"]


async def test_what_cannot_be_gone_on_from_says_so_before_and_makes_nothing(site: Site) -> None:
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
async def test_what_the_api_server_says_of_a_new_run_is_told(site: Site, answer: Any, status: int) -> None:
    site.api.answer = answer
    assert (await retry(site))[0] == status
    assert [each[0] for each in site.api.asked] == ["GET", "POST"]  # nothing is tried twice


# -- logs -------------------------------------------------------------------------------------------


async def test_a_log_is_passed_on_as_it_is_written_by_the_viewers_token(site: Site) -> None:
    async with site.follow(1) as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert await answer.content.readline() == b"step 1\n"  # while it goes on
        site.api.ended.set()
        assert await answer.content.read() == b"step 2\n"
    [(_, path, headers, query)] = site.api.asked
    assert path == "/api/v1/namespaces/research/pods/llama-70b-uid-r-1-1/log"
    assert headers["Authorization"] == "Bearer admin"
    assert query == {"container": "trainer", "follow": "true", "tailLines": str(logs.TAIL_LINES)}


async def test_who_may_not_read_logs_gets_none_and_no_stack(site: Site) -> None:
    site.cluster.reports[UID][1] = report(1, "gpu-1", 9, now=0.0, stacks=StackReport("h", "train.py:34 all_reduce"))
    async with site.follow(1, "tenant") as answer:
        assert answer.status == 403
        assert "pods/log" in await answer.text()
    assert (await site.get(f"{RUN}/ranks/1"))[1]["stack"] == "train.py:34 all_reduce"
    _, told = await site.get(f"{RUN}/ranks/1", "tenant")
    assert (told["mayRead"], told["stack"]) == (False, "")


STACKS = "/api/v1/namespaces/research/configmaps/llama-70b-stacks-1"


def hung_once(site: Site, rows: Any) -> None:
    """Its first attempt did, and ``rows`` are in the ConfigMap of that."""
    run = site.cluster.runs[0]
    first, *others = run.status.attempts
    attempts = (changed(first, stacks="llama-70b-stacks-1"), *others)
    site.cluster.runs[0] = replace(run, status=changed(run.status, attempts=attempts))
    text = rows if isinstance(rows, str) else json.dumps(rows)
    site.api.objects[STACKS] = {"metadata": {"name": "x"}, "data": {"stacks.json": text}}


async def test_stacks_of_earlier_hangs_are_read_by_the_viewers_token(site: Site) -> None:
    hung_once(site, [{"ranks": "0-6", "stacks": "train.py:34 all_reduce"}, {"ranks": "7", "stacks": "data.py:9 read"}])
    assert (await site.get(f"{RUN}/ranks/1"))[1]["hangs"] == [1]
    assert await site.get(f"{RUN}/stacks/1") == (
        200,
        {"groups": [{"ranks": "0-6", "text": "train.py:34 all_reduce"}, {"ranks": "7", "text": "data.py:9 read"}]},
    )
    [(_, path, headers, _)] = site.api.asked
    assert (path, headers["Authorization"]) == (STACKS, "Bearer admin")


@pytest.mark.parametrize(
    ("attempt", "token", "status", "words"),
    [
        ("2", "admin", 404, "no stacks of attempt 2"),
        ("x" * 50, "admin", 404, "no stacks of attempt xxxxxxxxxx of"),
        ("1", "tenant", 403, "you may not get configmaps in namespace research; ask for the role view"),
        ("1", "gone", 404, "ConfigMap llama-70b-stacks-1 is not there any more"),
    ],
)
async def test_stacks_that_there_are_not_or_not_for_the_viewer_are_told(
    site: Site, attempt: str, token: str, status: int, words: str
) -> None:
    hung_once(site, [])
    if token == "gone":
        del site.api.objects[STACKS]
    got, body = await site.get(f"{RUN}/stacks/{attempt}", "tenant" if token == "tenant" else "admin")
    assert (got, words in body["message"]) == (status, True)


@pytest.mark.parametrize(
    "rows", ["", "[" * 5000, "{}", [1], [{"ranks": 1, "stacks": "x"}], [{"stacks": "x"}], "null", '"x"']
)
async def test_stacks_that_somebody_wrote_to_hurt_show_nothing(site: Site, rows: Any) -> None:
    hung_once(site, rows)
    assert await site.get(f"{RUN}/stacks/1") == (200, {"groups": []})
    site.api.objects[STACKS]["data"] = []
    assert await site.get(f"{RUN}/stacks/1") == (200, {"groups": []})


async def test_of_stacks_no_more_is_shown_than_fits(site: Site) -> None:
    hung_once(site, [{"ranks": "0", "stacks": "x" * 9000}] * 100)
    _, body = await site.get(f"{RUN}/stacks/1")
    assert [len(each["text"]) for each in body["groups"]] == [4096] * 64
    hung_once(site, "x" * (1 << 20))
    assert (await site.get(f"{RUN}/stacks/1"))[0] == 503


@pytest.mark.parametrize("rank", ["-1", "8", "99999999999", "0x1", "²"])
async def test_a_rank_that_there_is_not_is_no_path(site: Site, rank: str) -> None:
    async with site.follow(rank) as answer:
        assert answer.status == 404
    assert site.api.asked == []


@pytest.mark.parametrize("assignment", [{"nodes": (), "incarnations": ()}, {"incarnations": (1,)}])
async def test_a_run_without_nodes_that_make_sense_has_no_log(site: Site, assignment: Any) -> None:
    run = site.cluster.runs[0]
    status = changed(run.status, assignment=changed(run.status.assignment, **assignment))
    site.cluster.runs[0] = replace(run, status=status)
    async with site.follow(1) as answer:
        assert (answer.status, "no nodes yet" in await answer.text()) == (404, True)
    assert site.api.asked == []


async def test_a_run_that_gave_its_nodes_back_has_the_logs_of_its_last_pods(site: Site) -> None:
    run = site.cluster.runs[0]
    status = changed(run.status, assignment=released(run.status.assignment))
    site.cluster.runs[0] = replace(run, status=changed(status, resolved=changed(status.resolved, nodes=2)))
    site.api.ended.set()
    async with site.follow(1) as answer:
        assert await answer.read() == b"step 1\nstep 2\n"
    async with site.follow(2) as answer:
        assert answer.status == 404
    assert (await site.get(f"{RUN}/ranks/1"))[1]["node"] == ""


@pytest.mark.parametrize(
    ("answer", "status"), [((400, {"message": "waiting to start"}), 409), ((404, {"message": "gone"}), 404)]
)
async def test_a_pod_without_a_log_is_told(site: Site, answer: Any, status: int) -> None:
    site.api.answer = answer
    async with site.follow() as told:
        assert told.status == status


async def test_one_viewer_follows_no_more_than_a_few_logs_and_whoever_leaves_makes_room(site: Site) -> None:
    streams = [await site.follow(rank % 2) for rank in range(logs.STREAMS_OF_ONE)]
    async with site.follow() as answer:
        assert answer.status == 429
    streams.pop().close()  # nothing is written meanwhile, and it is noticed all the same
    async with asyncio.timeout(30):
        full = logs.STREAMS_OF_ONE
        while len(site.page.logs) == full or site.api.following == full:  # noqa: ASYNC110 (two counts, no event)
            await asyncio.sleep(0.02)
    async with site.follow() as answer:
        assert answer.status == 200
    for stream in streams:
        stream.close()


async def test_a_log_comes_no_faster_than_its_bytes_are_allowed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "x" * 1023
    site.api.lines = [line] * int(logs.BURST // 1024 + 2048)  # two MiB beyond what comes at once
    site.api.ended.set()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(site.cluster.clock, "sleep", sleep)
    async with site.follow() as answer:
        assert len(await answer.read()) == 1024 * len(site.api.lines)
    assert max(slept) > 7.0  # by then two MiB are owed, of 256 KiB a second


async def test_a_stream_ends_after_a_while_and_is_judged_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST", 0.3)
    async with site.follow() as answer:
        assert await answer.read() == b"step 1\nstep 2\n"
    assert len(site.page.logs) == 0
    site.api.may["admin"] = frozenset()
    async with site.follow() as answer:
        assert answer.status == 403


# -- whose connection it is -------------------------------------------------------------------------

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: CA}}]
users: [{name: u, user: {client-certificate: CERT, client-key: KEY}}]
"""


async def test_no_client_certificate_of_the_operator_is_shown_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it the API server would take the caller for the operator, whatever token comes along."""
    certificate, key = new_authority(0.0)[:2]
    for name, content in (("CA", certificate), ("CERT", certificate), ("KEY", key)):
        (tmp_path / name).write_bytes(content)
    shown: list[ssl.SSLContext] = []
    load = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext, "load_cert_chain", lambda self, *args: (shown.append(self), load(self, *args))[1]
    )
    path = tmp_path / "config"
    path.write_text(
        KUBECONFIG.replace(": CA", f": {tmp_path}/CA")
        .replace("CERT", f"{tmp_path}/CERT")
        .replace("KEY", f"{tmp_path}/KEY")
    )
    found = await load_credentials(str(path))
    assert shown == [found.ssl]
    assert isinstance(found.trust, ssl.SSLContext)
    assert found.trust is not found.ssl
    assert found.trust.verify_mode is ssl.CERT_REQUIRED


async def test_requests_of_others_go_by_the_trust_that_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own, trust = ssl.create_default_context(), ssl.create_default_context()

    async def credentials() -> Credentials:
        return Credentials("https://127.0.0.1:1", own, None, ApiServer().credentials, trust)  # type: ignore[arg-type]

    shown: list[Any] = []
    request = aiohttp.ClientSession.request

    def seen(self: Any, *args: Any, **options: Any) -> Any:
        shown.append((options["ssl"], options["headers"]))
        return request(self, *args, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "request", seen)
    caller = CallerApi(credentials, ManualClock())
    with pytest.raises(UnreachableError):
        await caller.patch("/x", {}, "theirs")
    with pytest.raises(UnreachableError):
        async with caller.stream("/x", {}, "theirs"):
            pass
    assert [each[0] is trust for each in shown] == [True, True]
    assert {each[1]["Authorization"] for each in shown} == {"Bearer theirs"}
    await caller.close()


async def test_without_a_token_nothing_is_sent() -> None:
    api = ApiServer()
    caller = CallerApi(api.credentials, ManualClock())
    with pytest.raises(ValueError, match="token"):
        await caller.patch("/x", {}, "")
    await caller.close()


async def test_where_the_api_server_is_unknown_nothing_is_sent() -> None:
    async def broken() -> Credentials:
        raise ConfigException("no file")

    with pytest.raises(UnreachableError):
        await CallerApi(broken, ManualClock()).patch("/x", {}, "t")
