"""What the controller knows of archive jobs, and how it comes by their last words."""

from __future__ import annotations

import json
from typing import Any

from lockstep.api.base import names
from lockstep.controller.store.archive_jobs import ArchiveJobs, last_words, parse_job
from lockstep.core.model.snapshot import JobPhase

RUN = "run-uid"


def job(version: int, *, uid: str = "job-1", ended: str = "", owner: str = RUN) -> bytes:
    conditions = [
        {"type": ended, "status": "True", "message": "backoff limit", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    ]
    body = {
        "metadata": {
            "name": f"llama-{uid}",
            "namespace": "team",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {names.LABEL_ARCHIVE_OF: RUN},
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "status": {"conditions": conditions if ended else []},
    }
    return json.dumps(body).encode()


def pod(message: str, finished: str, container: str = "archive", owner: str = "job-1") -> dict[str, Any]:
    terminated = {"exitCode": 0, "finishedAt": finished, "message": message}
    return {
        "metadata": {"ownerReferences": [{"uid": owner, "controller": True}]},
        "status": {"containerStatuses": [{"name": container, "state": {"terminated": terminated}}]},
    }


def test_a_job_has_ended_once_its_last_words_were_asked_for() -> None:
    heard: list[str] = []
    jobs = ArchiveJobs(heard.append)
    jobs.cache.upsert(parse_job(job(1)))
    assert jobs.unread(RUN, "llama-job-1") is None
    jobs.cache.upsert(parse_job(job(2, ended="Complete")))
    assert [each.phase for each in jobs.for_run(RUN)] == [JobPhase.ACTIVE]
    unread = jobs.unread(RUN, "llama-job-1")
    assert unread is not None
    jobs.keep_words(unread, "{}")
    assert [(each.phase, each.result) for each in jobs.for_run(RUN)] == [(JobPhase.COMPLETE, "{}")]
    assert jobs.unread(RUN, "llama-job-1") is None
    assert heard == [RUN, RUN]


def test_a_failed_job_tells_when_and_why() -> None:
    view = parse_job(job(1, ended="Failed")).view
    assert (view.phase, view.message, view.finished_at) == (JobPhase.FAILED, "backoff limit", 1_795_262_400.0)


def test_a_job_that_is_gone_leaves_nothing_behind() -> None:
    jobs = ArchiveJobs(lambda _: None)
    item = parse_job(job(1, ended="Complete"))
    jobs.cache.upsert(item)
    jobs.keep_words(item.view, "{}")
    jobs.cache.remove("job-1", 2)
    assert jobs.for_run(RUN) == ()
    jobs.keep_words(item.view, "late")
    jobs.cache.upsert(parse_job(job(3, ended="Complete")))
    assert jobs.unread(RUN, "llama-job-1") is not None


def test_a_copied_label_makes_no_job_of_the_run() -> None:
    jobs = ArchiveJobs(lambda _: None)
    jobs.cache.upsert(parse_job(job(1, owner="somebody")))
    assert jobs.for_run(RUN) == ()


def test_the_last_pod_to_end_has_the_last_word() -> None:
    pods = [
        pod("second", "2026-11-21T12:00:02Z"),
        pod("first", "2026-11-21T12:00:01Z"),
        pod("sidecar", "2026-11-21T12:00:09Z", container="other"),
        pod("somebody else's", "2026-11-21T12:00:09Z", owner="job-0"),
        {"status": {"containerStatuses": [{"name": "archive", "state": {"running": {}}}]}},
        {},
    ]
    assert last_words(pods, "job-1") == "second"
    assert last_words([], "job-1") == ""


def test_a_job_none_of_whose_pods_runs_is_idle_since_it_began() -> None:
    body = json.loads(job(1))
    body["status"] = {"startTime": "2026-11-21T12:00:00Z", "active": 1, "ready": 0}
    assert parse_job(json.dumps(body).encode()).view.idle_since == 1_795_262_400.0
    body["status"]["ready"] = 1
    assert parse_job(json.dumps(body).encode()).view.idle_since == 0.0


def test_what_a_job_was_told_and_that_it_is_to_end_is_read_of_it() -> None:
    body = json.loads(job(1))
    plain = parse_job(json.dumps(body).encode()).view
    assert (plain.removes, plain.deleting, plain.told) == (False, False, frozenset())
    arguments = ["prune", "--run-uid", RUN, "--keep-last", "2", "--pin", "a1/step-5", "--pin", "step-7"]
    body["spec"] = {"template": {"spec": {"containers": [{"name": "archive", "args": arguments}]}}}
    body["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    view = parse_job(json.dumps(body).encode()).view
    assert (view.removes, view.deleting) == (True, True)
    assert view.told == {("--run-uid", RUN), ("--keep-last", "2"), ("--pin", "a1/step-5"), ("--pin", "step-7")}
    body["spec"]["template"]["spec"]["containers"][0]["args"] = ["upload", "--run-uid", RUN]
    assert not parse_job(json.dumps(body).encode()).view.removes


def test_what_a_job_was_told_is_read_of_its_own_container_wherever_a_policy_puts_another() -> None:
    body = json.loads(job(1))
    own = {"name": "archive", "args": ["prune", "--run-uid", RUN]}
    other = {"name": "istio-proxy", "args": ["proxy", "--drain", "5"]}
    for containers in ([other, own], [own, other], [other]):
        body["spec"] = {"template": {"spec": {"containers": containers}}}
        view = parse_job(json.dumps(body).encode()).view
        assert view.removes is (own in containers)
        assert view.told == ({("--run-uid", RUN)} if own in containers else frozenset())
