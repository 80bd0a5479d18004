"""What a job submits from inside: for its own user, queue and namespace, and with what it has itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.batch.inside import (
    SubmissionRefusedError,
    manifest_of,
    mark_of,
    notices_of,
    submitted_name,
)
from lockstep.core.batch.submission import NumberedJob
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import JobAsk
from lockstep.core.pods.validation import validate

HOME = {"name": "home", "mountPath": "/home", "persistentVolumeClaim": {"claimName": "home"}}
SCRIPT = "#!/bin/sh\n#SBATCH -N 2 -J next\nsrun x\n"
BODY: dict[str, Any] = {
    "options": ["-d", "afterany:7"],
    "script": SCRIPT,
    "name": "next.sh",
    "arguments": ["a"],
    "directory": "/home/ada",
    "environment": {"SBATCH_QOS": "low"},
}
JOBS = {7: NumberedJob("first"), 8: NumberedJob("sweep", is_array=True)}


def parent(name: str = "first", **spec: Any) -> RunView:
    batch = {"script": "#!/bin/sh\n", "user": "ada", "uid": 1000, "gid": 100, "host": "login"}
    fields = {
        "nodes": 4,
        "image": "registry/own:1",
        "queue": "research",
        "volumes": [HOME],
        "env": [{"name": "A", "value": "1"}],
        "shmSize": "1Gi",
        "timeLimit": "1h",
        "launcher": {"type": "Slurm", "batch": batch},
        "podTemplate": {"spec": {"securityContext": {"runAsUser": 1000}}},
        **spec,
    }
    metadata = {
        "namespace": "team",
        "name": name,
        "uid": "uid-first",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {names.ANNOTATION_USER: "ada@example.net"},
    }
    return parse_run({"metadata": metadata, "spec": fields})


def ask(identity: str = "a-1", **changes: Any) -> JobAsk:
    return JobAsk(identity, "submit", msgspec.Raw(json.dumps({**BODY, **changes}).encode()))


def test_a_job_that_is_submitted_has_what_its_parent_has_and_what_it_asks_for() -> None:
    made = manifest_of(parent(), ask(), JOBS)
    assert made["metadata"] == {
        "name": submitted_name(parent(), ask()),
        "namespace": "team",
        "annotations": {
            names.ANNOTATION_USER: "ada@example.net",
            names.ANNOTATION_SUBMITTED_BY: "uid-first/a-1",
        },
    }
    spec = made["spec"]
    batch = spec.pop("launcher")["batch"]
    assert spec == {
        "nodes": 2,
        "image": "registry/own:1",
        "queue": "research",
        "volumes": [HOME],
        "env": [{"name": "A", "value": "1"}],
        "shmSize": "1Gi",
        "priorityClassName": "low",
        "dependsOn": [{"name": "first", "condition": "Finished"}],
        "podTemplate": {"spec": {"securityContext": {"runAsUser": 1000}}},
    }
    assert (batch["script"], batch["arguments"], batch["directory"]) == (SCRIPT, ["a"], "/home/ada")
    assert "command" not in batch, "of an older worker"
    assert (batch["user"], batch["uid"], batch["gid"], batch["host"]) == ("ada", 1000, 100, "login")


def test_the_path_of_its_script_is_that_where_it_was_submitted() -> None:
    made = manifest_of(parent(), ask(options=["-D", "/home/bob"], command="steps/next.sh"), JOBS)
    batch = made["spec"]["launcher"]["batch"]
    assert (batch["command"], batch["directory"], batch["name"]) == ("/home/ada/steps/next.sh", "/home/bob", "next.sh")


@pytest.mark.parametrize(
    ("own", "inherited"),
    [
        ({"shared": {"claimName": "lustre"}}, {"shared": {"claimName": "lustre"}}),
        (
            {"format": "Torch", "shared": {"claimName": "lustre", "path": "a"}, "start": {"run": "older"}},
            {"shared": {"claimName": "lustre"}},
        ),
        ({"local": {"storage": "nvme"}}, None),
        (None, None),
    ],
)
def test_its_checkpoints_are_on_the_claim_of_its_parents_and_in_a_place_of_their_own(own: Any, inherited: Any) -> None:
    made = manifest_of(parent(**({"checkpoint": own} if own else {})), ask(), JOBS)
    assert made["spec"].get("checkpoint") == inherited
    assert validate(TrainingRunSpec.model_validate(made["spec"]), {}) == []


def test_labels_that_nodes_must_have_stand_beside_the_parents_template() -> None:
    made = manifest_of(parent(), ask(options=["-C", "ib"]), JOBS)
    assert made["spec"]["podTemplate"]["spec"] == {
        "securityContext": {"runAsUser": 1000},
        "nodeSelector": {"ib": "true"},
    }


@pytest.mark.parametrize(
    ("options", "selector"),
    [
        ([], {"pool": "a", "zone": "x"}),
        (["-C", "gpu"], {"pool": "a", "zone": "x", "gpu": "true"}),
        (["-C", "zone=y"], {"pool": "a", "zone": "y"}),
        (["-C", "ib"], {"pool": "a", "zone": "x", "ib": "true"}),
    ],
)
def test_what_its_parent_asked_of_nodes_by_option_is_the_parents_alone(options: list[str], selector: Any) -> None:
    batch = {"script": "#!/bin/sh\n", "options": {"constraint": "ib&rack=7"}}
    own = {"pool": "a", "zone": "x", "ib": "true", "rack": "7"}
    first = parent(
        launcher={"type": "Slurm", "batch": batch},
        podTemplate={"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": own, "hostname": "h"}},
    )
    template = manifest_of(first, ask(options=options), JOBS)["spec"]["podTemplate"]
    assert template == {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": selector, "hostname": "h"}}
    bare = parent(launcher={"type": "Slurm", "batch": batch}, podTemplate={"spec": {"nodeSelector": {"ib": "true"}}})
    assert "podTemplate" not in manifest_of(bare, ask(options=[]), JOBS)["spec"]
    odd = parent(launcher={"type": "Slurm", "batch": {**batch, "options": {"constraint": "[a|b]"}}})
    assert manifest_of(odd, ask(options=[]), JOBS)["spec"]["podTemplate"]["spec"] == {
        "securityContext": {"runAsUser": 1000}
    }


def test_it_is_one_that_the_operator_takes() -> None:
    made = manifest_of(parent(), ask(), JOBS)
    assert validate(TrainingRunSpec.model_validate(made["spec"]), {}) == []


def test_a_wrapped_command_is_submitted_too() -> None:
    made = manifest_of(parent(), ask(options=["--wrap=hostname"], script="", name="wrap", arguments=[]), JOBS)
    assert "hostname" in made["spec"]["launcher"]["batch"]["script"]


def test_a_name_is_that_of_the_request_and_fits() -> None:
    long = parent("x" * 40)
    assert len(submitted_name(long, ask())) == 40
    assert submitted_name(long, ask()) == submitted_name(long, ask(script="#!/bin/sh\n"))
    assert submitted_name(long, ask()) != submitted_name(long, ask("a-2"))
    assert mark_of(long, ask()) == "uid-first/a-1"


CLOCK = {"now": 1_795_000_000.5, "utc_offset": 3600}  # 2026-11-18T12:06:40 there


@pytest.mark.parametrize(
    ("begin", "made"),
    [
        ("now+1hour", "2026-11-18T12:06:40Z"),
        ("16:00", "2026-11-18T15:00:00Z"),
        ("tomorrow", "2026-11-18T23:00:00Z"),
        ("2026-12-01T08:00:00", "2026-12-01T07:00:00Z"),
        ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"),
    ],
)
@pytest.mark.parametrize("in_script", [False, True])
def test_it_may_begin_at_a_moment_by_the_clock_of_its_parents_node(begin: str, made: str, in_script: bool) -> None:
    said = {"script": f"#!/bin/sh\n#SBATCH -b {begin}\n"} if in_script else {"options": ["-b", begin]}
    assert manifest_of(parent(), ask(**said, **CLOCK), JOBS)["spec"]["notBefore"] == made


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another queue": ({"options": ["-p", "urgent"]}, "a job submits to its own queue, research"),
    "an array": ({"options": ["-a", "0-3"]}, "--array is for submissions from outside"),
    "a wait": ({"options": ["-W"]}, "--wait is for"),
    "a dry run": ({"options": ["--test-only"]}, "--test-only is for"),
    "a job of nobody": ({"options": ["-d", "afterok:99"]}, "there is no job 99 in namespace team"),
    "a moment that is none": ({"options": ["-b", "soon"], **CLOCK}, "soon is no time; write now+1hour"),
    "a moment without a clock, of an older worker": ({"options": ["-b", "now+1hour"]}, "2026-12-01T08:00:00Z"),
    "a moment by no clock": ({"options": ["-b", "16:00"], "now": 1e300}, "is no time"),
    "a moment in no zone": ({"options": ["-b", "16:00"], **CLOCK, "utc_offset": 10**9}, "is no time"),
    "a moment beyond all zones": ({"options": ["-b", "16:00"], **CLOCK, "utc_offset": 10**18}, "is no time"),
    "a file": ({"options": ["--export-file=x"]}, "cannot read it"),
    "an option that is none": ({"options": ["--foo"]}, "unrecognized option '--foo'"),
    "an option that is refused": ({"options": ["--uid=0"]}, "--uid 0"),
    "no script": ({"script": ""}, "Batch script is empty"),
    "a script that is none": ({"script": "srun x"}, "does not look like a batch script"),
    "no body": ({"script": 7}, "not understood"),
    "another mount": ({"options": ["--container-mounts=/etc:/etc"]}, "/etc is on no volume"),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_submitted_from_inside_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SubmissionRefusedError, match=words.replace("+", r"\+")):
        manifest_of(parent(), ask(**changes), JOBS)


def test_a_variable_that_is_named_goes_along_and_comes_before_the_parents() -> None:
    made = manifest_of(parent(), ask(options=["--export=ALL,STEP,A"], variables={"STEP": "2", "A": "9"}), JOBS)
    assert made["spec"]["env"] == [{"name": "STEP", "value": "2"}, {"name": "A", "value": "9"}]
    unnamed = manifest_of(parent(), ask(variables={"STEP": "2"}), JOBS)
    assert unnamed["spec"]["env"] == [{"name": "A", "value": "1"}]


NOTICES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({"options": ["-o", "/dev/null"]}, []),
    "an option that is ignored": (
        {"options": ["-o", "/dev/null", "--cpu-freq=high"]}, ["--cpu-freq high: clock rates are the cluster's"]),
    "a variable that is not set": (
        {"options": ["-o", "/dev/null", "--export=STEP"]}, ["--export STEP: STEP is not set here"]),
    "the whole shell": (
        {"options": ["-o", "/dev/null", "--export=ALL,STEP"], "variables": {"STEP": "2"}},
        ["--export ALL: the job has the environment that this one was given, and what --export=ALL,NAME names"]),
    "a directory that no volume has": (
        {"options": ["-o", "/dev/null"], "directory": "/scratch"},
        ["path /scratch: is on no volume: the script starts in the image's own directory; there are /home"]),
    "what is refused by now": ({"options": ["--cpu-freq=high", "-d", "afterok:99"]}, []),
    "no body": ({"script": 7}, []),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), NOTICES.values(), ids=NOTICES)
def test_what_has_no_effect_is_said_as_outside(changes: dict[str, Any], words: list[str]) -> None:
    assert notices_of(parent(), ask(**changes), JOBS) == words


def test_its_own_queue_may_be_named_and_a_time_with_its_zone() -> None:
    options = ["-p", "urgent,research", "-b", "2026-12-01T08:00:00Z"]
    made = manifest_of(parent(), ask(options=options), JOBS)
    assert (made["spec"]["queue"], made["spec"]["notBefore"]) == ("research", "2026-12-01T08:00:00Z")


@pytest.mark.parametrize("body", [b"[]", b"{", b"[" * 500, b'{"options": "x"}', b'{"environment": {"a": 1}}', b"\xff"])
def test_whatever_is_sent_is_refused_and_raises_nothing_else(body: bytes) -> None:
    with pytest.raises(SubmissionRefusedError):
        manifest_of(parent(), JobAsk("a", "submit", msgspec.Raw(body)), JOBS)
