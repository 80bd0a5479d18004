"""Numbers of batch jobs on a real API server: every operator that gives one out may be the last thing it did."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from harness.site import OPERATOR_NAMESPACE, Run, Site
from localcluster.api import Request
from lockstep.api.base import names
from support.cli_user import User

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
PATIENCE = 240.0  # a dozen operators have to come up one after the other
COUNTER = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps/{names.JOB_IDS_CONFIG_MAP}"
BATCH: Json = {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun hostname\n"}}


def submit(site: Site, namespace: str, name: str) -> Run:
    return site.apply(namespace, name, nodes=1, command=None, checkpoint=None, launcher=BATCH)


def submit_array(site: Site, namespace: str, name: str, indices: str) -> str:
    """The path of the set."""
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUN_SETS}"
    template = {"spec": {"nodes": 1, "image": "trainer", "launcher": BATCH}}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {"name": name},
        "spec": {"indices": indices, "template": template},
    }
    site.cluster.api.send(Request("POST", path, body))
    return f"{path}/{name}"


def numbers(run: Run) -> list[int]:
    """All that its statuses ever said."""
    return [status["jobId"] for status in run.written() if "jobId" in status]


def test_operators_that_live_for_a_write_or_four_never_give_out_a_number_twice(site: Site, namespace: str) -> None:
    """They die between the block that they take and the status that has the first of it, too."""
    crashes, lives = site.proxy.crashes, itertools.cycle((1, 4))
    runs = [submit(site, namespace, f"job-{number}") for number in range(1)]
    array = submit_array(site, namespace, "sweep", "0-0")

    def crash_again() -> bool:
        if not site.proxy.crash_is_due:
            site.proxy.crash_after(next(lives), site.kill_operator, answered=False)
        return True

    def members() -> list[Json]:
        found = site.cluster.api.get(runs[0].path.rpartition("/")[0])["items"]
        return [raw for raw in found if raw["metadata"]["name"].startswith("sweep-")]

    def are_numbered() -> bool:
        crash_again()
        told = [run.status.get("jobId") for run in runs]
        told += [raw.get("status", {}).get("jobId") for raw in members()]
        return len(told) == 2 and all(told)

    runs[0].wait("all are numbered", are_numbered, PATIENCE)
    site.proxy.mend()
    for run in runs:
        assert len(set(numbers(run))) == 1, "it never changes"
    site.mend()
    assert site.proxy.crashes - crashes >= 2
    given = [run.status["jobId"] for run in runs]
    given += [raw["status"]["jobId"] for raw in members()]
    given.append(site.cluster.api.get(array)["status"]["jobId"])
    assert len(set(given)) == 3
    counter = int(site.cluster.api.get(COUNTER)["data"]["next"])
    assert counter > max(given)
    assert {raw["metadata"]["annotations"]["lockstep.dev/array-job"] for raw in members()} == {
        f"job={given[-1]} step=1"
    }


def test_a_counter_that_somebody_deletes_goes_on_above_the_jobs_that_there_are(site: Site, namespace: str) -> None:
    first = submit(site, namespace, "first")
    first.wait("it is numbered", lambda: first.status.get("jobId"))
    site.cluster.api.send(Request("DELETE", COUNTER))
    site.kill_operator()
    site.mend()
    later = [submit(site, namespace, f"later-{number}") for number in range(2)]
    for run in later:
        run.wait("it is numbered", lambda run=run: run.status.get("jobId"))
    found = [first.status["jobId"], *(run.status["jobId"] for run in later)]
    assert found[0] < min(found[1:])
    assert len(set(found)) == 3


def test_a_batch_job_trains_under_the_number_that_it_has(site: Site, namespace: str) -> None:
    run = submit(site, namespace, "llama")
    run.wait_until_running(1)
    number = run.status["jobId"]
    site.workers.finish(run.uid)
    run.wait_until_finished()
    assert (run.is_true("Succeeded"), run.status["jobId"]) == (True, number)


def test_a_user_submits_a_script_and_cancels_it_by_its_number(
    site: Site, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    user = User(site, namespace, capsys)
    said = user.types("sbatch", "--wrap=srun hostname", "--container-image=trainer", "-N", "2", "-J", "Hello World")
    number = said.removeprefix("Submitted batch job ").strip()
    assert said == f"Submitted batch job {number}\n"
    assert "is on no volume" in user.notes
    assert re.search(rf"^Job: +{number}$", user.types("info", number), re.MULTILINE)
    user.types("cancel", number)
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"
    [made] = site.cluster.api.get(path)["items"]
    assert made["metadata"]["name"].startswith("hello-world-")
    assert made["spec"]["cancel"] is True
    refused = user.types("sbatch", "--wrap=x", code=1)
    assert refused == ""
    assert "sbatch: error: --container-image: no image is named" in user.notes
    odd = user.types("sbatch", "--wrap=x", "--container-image=i", "--gpus-per-node=h900:8", code=1)
    assert odd == ""
    assert "sbatch: error: Batch job submission failed: spec.placement.gpuTypes[0]: h900" in user.notes
    assert len(site.cluster.api.get(path)["items"]) == 1, "what is refused is not left behind"
