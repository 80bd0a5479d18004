"""Arrays at work on a real control plane: widths, crashes, what comes after what, and rights in one namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from harness.site import Site
from harness.waiting import wait_for
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from lockstep.api.base import names
from lockstep.core.model.ranges import count_ranges, parse_ranges
from support.cli_user import User

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
RUN: Json = {
    "nodes": 1,
    "image": "trainer",
    "command": ["train"],
    "checkpoint": {"local": {"storage": "nvme"}},
    "ttlAfterFinished": "1s",
}
PATIENCE = 240.0


@dataclass(frozen=True)
class Array:
    """A TrainingRunSet that was applied."""

    site: Site
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.RUN_SETS}/{self.name}"

    @property
    def status(self) -> Json:
        found: Json = self.site.cluster.api.get(self.path).get("status", {})
        return found

    @property
    def runs(self) -> list[Json]:
        path = f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.RUNS}"
        selector = f"labelSelector={names.LABEL_SET}={self.name}"
        found: list[Json] = self.site.cluster.api.get(f"{path}?{selector}")["items"]
        return found

    def count(self, word: str) -> int:
        """Indices of a kind, as status has them."""
        found: int = self.status.get("counts", {}).get(word, 0)
        return found

    def change(self, **spec: Any) -> None:
        self.site.cluster.api.send(Request("PATCH", self.path, {"spec": spec}, MERGE_PATCH))

    def condition(self, kind: str) -> Json:
        return next((each for each in self.status.get("conditions", ()) if each["type"] == kind), {})

    def wait(self, what: str, look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        return wait_for(f"{self.name}: {what}", look, seconds=seconds, every=0.2, last_seen=self._seen)

    def finish_those_that_train(self) -> int:
        """Have every gang that trains end with success; how many hold nodes."""
        holding = 0
        for run in self.runs:
            status = run.get("status", {})
            if "nodes" not in status.get("assignment", {}) or status.get("state") in ("Succeeded", "Cancelled"):
                continue
            holding += 1
            with contextlib.suppress(KeyError):
                self.site.workers.finish(run["metadata"]["uid"])
        return holding

    def delete(self) -> None:
        self.site.cluster.api.send(Request("DELETE", self.path, absence_is_fine=True))

    def made(self) -> list[str]:
        """Names of runs that the operator created, in order."""
        place = f"/namespaces/{self.namespace}/{names.RUNS}"
        writes = [w for w in self.site.proxy.writes if w.method == "POST" and w.path.partition("?")[0].endswith(place)]
        made = [write.object.get("metadata", {}).get("name", "") for write in writes]
        return [name for name in made if name.startswith(f"{self.name}-")]

    def _seen(self) -> str:
        with contextlib.suppress(ApiError):
            runs = {run["metadata"]["name"]: run.get("status", {}).get("state") for run in self.runs}
            return f"{self.status}; runs {runs}\noperator:\n{self.site.operator.log_tail(5)}"
        return "the set is gone"


def apply(site: Site, namespace: str, name: str, indices: str, **spec: Any) -> Array:
    array = Array(site, namespace, name)
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {"name": name},
        "spec": {"indices": indices, "template": {"spec": RUN}} | spec,
    }
    site.cluster.api.send(Request("POST", array.path.rpartition("/")[0], body))
    return array


def test_an_array_of_twenty_keeps_its_width_although_the_operator_is_killed_in_the_middle(
    site: Site, namespace: str
) -> None:
    array = apply(site, namespace, "sweep", "0-19", maxRunning=3)
    widest, killed = 0, 0

    def over() -> bool:
        nonlocal widest, killed
        widest = max(widest, array.finish_those_that_train())
        done = int(array.status.get("done", "0/").partition("/")[0])
        if killed < 2 and done >= (4, 10)[killed]:
            site.kill_operator()
            killed += 1
        return array.condition("Finished").get("status") == "True"

    array.wait("it ends", over, PATIENCE)
    assert killed == 2
    assert 1 <= widest <= 3
    status = array.status
    assert (status["indices"]["succeeded"], status["state"], status["done"]) == ("0-19", "Succeeded", "20/20")
    # Those of one look are created at the same time, so they may overtake each other; a kill has some sent again.
    first_made = [int(name.rpartition("-")[2]) for name in dict.fromkeys(array.made())]
    assert sorted(first_made) == list(range(20))
    assert all(abs(index - place) < 6 for place, index in enumerate(first_made))
    array.wait("its runs are deleted when their time is over", lambda: array.runs == [])
    assert array.status["indices"]["succeeded"] == "0-19"
    array.delete()


def test_an_array_whose_first_write_is_never_answered_makes_its_runs_once_it_is_known_what_became_of_it(
    site: Site, namespace: str
) -> None:
    site.proxy.lose_answers(True)
    try:
        array = apply(site, namespace, "sweep", "0-1")
        # What others see of it may be there before its answer is lost.
        array.wait("its status is written", lambda: any(w.path == f"{array.path}/status" for w in site.proxy.writes))
    finally:
        site.proxy.lose_answers(False)
    array.wait("both are made", lambda: len(array.runs) == 2 <= len(array.made()))
    assert sorted(array.made()) == ["sweep-0", "sweep-1"]
    array.delete()


def test_the_second_array_follows_the_first_index_by_index_and_outlives_its_runs(site: Site, namespace: str) -> None:
    first = apply(site, namespace, "prepare", "0-3", maxRunning=2)
    second = apply(site, namespace, "train", "0-4", afterCorr="prepare", onUnsatisfiable="Cancel")

    def over() -> bool:
        first.finish_those_that_train()
        second.finish_those_that_train()
        # In this order: who was made by now followed one that had ended, which is a run or, once deleted, on record.
        made = {int(name.rpartition("-")[2]) for name in second.made()}
        ended = {int(run["metadata"]["name"].rpartition("-")[2]) for run in first.runs if has_succeeded(run)}
        assert made <= ended | parse_ranges(first.status.get("indices", {}).get("succeeded", ""))
        return second.condition("Finished").get("status") == "True"

    second.wait("it ends", over, PATIENCE)
    known = second.status["indices"]
    assert (known["succeeded"], known["cancelled"]) == ("0-3", "4")
    assert second.condition("Succeeded")["reason"] == "SomeCancelled"
    for array in (first, second):
        array.delete()


def has_succeeded(run: Json) -> bool:
    return bool(run.get("status", {}).get("state") == "Succeeded")


def test_what_a_user_does_to_single_runs_is_respected(site: Site, namespace: str) -> None:
    runs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"
    foreign = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": "sweep-1"}}
    own = site.cluster.api.send(Request("POST", runs, foreign | {"spec": RUN | {"suspend": True}}))
    array = apply(site, namespace, "sweep", "0-5", maxRunning=2)
    array.wait("the foreign run is named", lambda: "sweep-1" in array.condition("Progressing").get("message", ""))
    assert site.cluster.api.get(f"{runs}/sweep-1")["metadata"]["uid"] == own["metadata"]["uid"]
    array.wait("two have nodes", lambda: array.count("running") == 2)
    site.cluster.api.send(Request("DELETE", f"{runs}/sweep-0"))
    array.wait("the deleted one counts as cancelled", lambda: "0" in array.status["indices"]["cancelled"].split(","))
    array.change(suspend=True)
    array.wait("it is suspended", lambda: array.condition("Suspended").get("status") == "True")
    assert all(run["spec"]["suspend"] is False for run in array.runs), "nobody wrote into the runs"
    array.change(suspend=False)
    array.wait("it goes on", lambda: array.count("running") == 2)
    array.change(cancelIndices="3")
    array.wait("one is cancelled", lambda: 3 in parse_ranges(array.status["indices"]["cancelled"]))
    array.change(cancel=True)
    array.wait("all are", lambda: array.condition("Finished").get("status") == "True")
    known = array.status["indices"]
    assert count_ranges(known["cancelled"]) == 6
    array.change(ttlAfterFinished="1s")  # only now: until it was seen to finish it has to be there
    array.wait("the set is deleted after its time", lambda: _is_gone(site, array.path))
    assert site.cluster.api.get(f"{runs}/sweep-1")["metadata"]["uid"] == own["metadata"]["uid"]


def test_a_user_with_rights_in_one_namespace_submits_watches_and_cancels_an_array(
    site: Site, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    user = User(site, namespace, capsys)
    command = ("--image", "registry.example/train:1", "--", "python", "train.py")
    user.types("submit", "--name", "prepare", "-a", "0-1", "-H", *command)
    made = user.types("submit", "--name", "sweep", "-a", "0-9%2", "-d", "aftercorr:prepare", *command)
    assert made == "trainingrunset.lockstep.dev/sweep created\n"
    user.types("submit", "--name", "sweep", "-a", "0-9", *command, code=1)
    assert "there is an array sweep" in user.notes
    sweep = Array(site, namespace, "sweep")
    sweep.wait("it waits", lambda: sweep.condition("Progressing").get("reason") == "DependencyNeverSatisfied")
    assert "sweep_[0-9%2]" in user.types("queue")
    assert "did not succeed, or does not exist: 2-9" in user.types("status", "sweep")
    user.types("cancel", "sweep_[2-9]")
    user.types("resume", "prepare")
    prepare = Array(site, namespace, "prepare")
    prepare.wait("it runs", lambda: prepare.count("running") == 2)
    listed = user.types("queue").splitlines()
    assert {"prepare-0", "prepare-1"} <= {line.split()[0] for line in listed}
    user.types("hold", "sweep-1", code=1)
    assert "index 1 of sweep has no run, it is pending" in user.notes
    user.types("requeue", "prepare", code=1)
    assert "prepare is a TrainingRunSet" in user.notes
    annotations = prepare.runs[0]["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_USER] == f"system:serviceaccount:{namespace}:user"
    user.types("cancel", "prepare", "sweep")
    for array in (prepare, sweep):
        array.wait("it ends", lambda array=array: array.condition("Finished").get("status") == "True")
    said = "No runs wait or run"  # one that has ended is listed while it holds a node
    wait_for("nothing is left in the queue", lambda: said in (user.types("queue") + user.notes), seconds=PATIENCE)


def _is_gone(site: Site, path: str) -> bool:
    try:
        site.cluster.api.get(path)
    except ApiError as error:
        return error.status == 404
    return False
