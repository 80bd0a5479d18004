"""What `submit` says in its first two seconds: what is missing, what became of the run, and with which exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.errors import ApiServerError, CliError, ExitCode, Unreachable
from lockstep.cli.main import main
from lockstep.cli.submission import submit, verdicts
from lockstep.cli.submission.look_up import missing_problems
from lockstep.cli.submission.verdicts import tell_verdicts
from support import sample_runs as sample
from support.answering_server import answering, kubeconfig, refuses, says
from support.cli_server import CliServer

GOOD: dict[str, Any] = {"nodes": 2, "image": "i", "command": ["c"]}
FORBIDDEN = ApiServerError(403, "you may not")


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingRun",
        "metadata": {"name": "llama"},
        "spec": GOOD | spec,
    }


NAMING = {
    "serviceAccountName": "trainr",
    "checkpoint": {"shared": {"claimName": "lustr"}},
    "envFrom": [{"secretRef": {"name": "hf-tokn"}}, {"configMapRef": {"name": "nowhere", "optional": True}}],
    "volumes": [{"name": "code", "mountPath": "/code", "configMap": {"name": "code"}}],
}
THERE = {
    place: {
        "metadata": {"name": place.partition("/")[2]},
        "data": {"train.py": "x"},
        "binaryData": {"model.bin": "AA=="},
    }
    for place in ("serviceaccounts/trainer", "persistentvolumeclaims/lustre", "secrets/hf-token", "configmaps/code")
}


def test_what_is_missing_is_found_by_ones_own_rights_with_what_may_be_meant() -> None:
    server = CliServer(THERE)
    found = missing_problems(server, manifest(**NAMING))
    assert [(field, words.partition("? ")[0]) for field, words in found] == [
        ("spec.serviceAccountName", "there is no ServiceAccount trainr in namespace team; did you mean trainer"),
        ("spec.envFrom[0].secretRef.name", "there is no Secret hf-tokn in namespace team; did you mean hf-token"),
        (
            "spec.checkpoint.shared.claimName",
            "there is no PersistentVolumeClaim lustr in namespace team; did you mean lustre",
        ),
    ]
    assert "configmaps/nowhere" not in server.asked


ENTRIES = {
    "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "tokn"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "train.py"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "nowhere", "key": "x"}}},
    ],
    "volumes": [
        {
            "name": "code",
            "mountPath": "/code",
            "configMap": {"name": "code", "items": [{"key": each, "path": each} for each in ("trian.py", "model.bin")]},
        }
    ],
}


def test_entries_that_config_maps_and_secrets_lack_are_found_by_ones_own_rights_too() -> None:
    server = CliServer(THERE)
    assert missing_problems(server, manifest(**ENTRIES)) == [
        (
            "spec.env[2].valueFrom.configMapKeyRef.name",
            "there is no ConfigMap nowhere in namespace team; create it, or name another",
        ),
        (
            "spec.env[0].valueFrom.secretKeyRef.key",
            "Secret hf-token in namespace team has no key tokn; add it, or name another",
        ),
        (
            "spec.volumes[0].configMap.items[0].key",
            "ConfigMap code in namespace team has no key trian.py; did you mean train.py? Else add it, or name another",
        ),
    ]
    server.refusals = dict.fromkeys(("secrets", "configmaps"), FORBIDDEN)
    assert missing_problems(server, manifest(**ENTRIES)) == []
    made = missing_problems(CliServer(THERE), manifest(**ENTRIES), ["code", "nowhere"])
    assert [field for field, _ in made] == ["spec.env[0].valueFrom.secretKeyRef.key"], "who makes them knows them"


def test_what_one_may_not_see_is_left_to_the_operator_and_what_one_may_not_list_has_no_names() -> None:
    hidden = ("secrets", "serviceaccounts", "persistentvolumeclaims")
    server = CliServer(THERE, refusals=dict.fromkeys(hidden, FORBIDDEN))
    assert missing_problems(server, manifest(**NAMING)) == []
    assert missing_problems(server, manifest(nodes="two")) == [], "what does not parse names nothing"


def test_an_arrays_template_is_looked_through_by_its_own_path() -> None:
    wrong = manifest() | {"kind": "TrainingRunSet", "spec": {"indices": "0-3", "template": {"spec": GOOD | NAMING}}}
    fields = [field for field, _ in missing_problems(CliServer(THERE), wrong)]
    assert fields[0] == "spec.template.spec.serviceAccountName"


def test_all_of_it_is_one_refusal_with_what_the_api_server_has_against_the_rest() -> None:
    server = CliServer(THERE)
    rule = "spec.singleton: is not for arrays"
    causes = (
        ("spec.shmSize", 'Invalid value: "1": write a size as 512Mi'),
        ("spec.nodes", "Required value"),
        ("", rule),
    )
    server.refusals["ask"] = ApiServerError(422, "", causes=causes)
    with pytest.raises(CliError) as error:
        submit.refuse_wrong(server, manifest(nodes=0, resourcesPerNode={"gpu": 8}, **NAMING))
    lines = str(error.value).splitlines()
    assert lines[0] == "llama is refused:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "spec.nodes",
        "spec.resourcesPerNode[gpu]",
        "spec.serviceAccountName",
        "spec.envFrom[0].secretRef.name",
        "spec.checkpoint.shared.claimName",
        "spec.shmSize",
        "spec.singleton",
    ]
    (tried,) = server.tried
    assert tried["spec"]["nodes"] == 1


def test_a_good_manifest_is_judged_by_its_creation_alone() -> None:
    server = CliServer(THERE)
    submit.refuse_wrong(server, manifest())
    assert (server.tried, server.asked) == ([], [])
    submit.refuse_wrong(server, manifest(**NAMING), look_up=False)
    assert (server.tried, server.asked) == ([], [])


def looks(name: str, statuses: Sequence[dict[str, Any] | CliError | None]) -> list[Any]:
    return [sample.run(name, status=each) if isinstance(each, dict) else each for each in statuses]


def status(reason: str = "", accepted: str = "True", **fields: Any) -> dict[str, Any]:
    told = {"type": "Accepted", "status": accepted, "reason": reason or "Accepted", "message": "words"}
    moment = {"lastTransitionTime": sample.at(0), "observedGeneration": 1}
    return {"conditions": [told | moment], **fields}


WAITS = {"reason": "Resources", "message": "needs 2 nodes, 0 fit", "position": 3}
OUTDATED = {"conditions": [{**status("InvalidSpec", "False")["conditions"][0], "observedGeneration": 0}]}
BECOMES: dict[str, tuple[list[dict[str, Any] | CliError], str, ExitCode]] = {
    "waits": ([status(queue=WAITS)], "waits in queue default at position 3: Resources: needs 2 nodes", ExitCode.OK),
    "has nodes": (
        [status(attempt=1, assignment={"nodes": ["a", "b"]})],
        "llama has 2 nodes, and starts",
        ExitCode.OK,
    ),
    "has more nodes than status names": (
        [status(attempt=1, assignment={"hash": "h", "configMap": "large"}, resolved={"nodes": 512})],
        "llama has 512 nodes, and starts",
        ExitCode.OK,
    ),
    "is refused": (
        [status("ClaimNotFound", "False")],
        "llama is refused: words\n  It stays, and goes on once that is corrected. lockstep cancel llama ends it.",
        ExitCode.REFUSED,
    ),
    "names no queue": (
        [status(queue={"reason": "QueueNotFound", "message": "there is no TrainingQueue reserch"})],
        "llama is refused: there is no TrainingQueue reserch\n  It stays, and goes on once that is corrected.",
        ExitCode.REFUSED,
    ),
    "asks for too much": (
        [status(queue={"reason": "NodesPerRunLimit", "message": "at most 4"})],
        "llama cannot start as it is: NodesPerRunLimit: at most 4",
        ExitCode.REFUSED,
    ),
    "waits for others of its quota": (
        [status(queue={"reason": "Quota", "message": "queue q uses 4 of its 4 nodes; the run needs 2"})],
        "llama waits in queue default: Quota: queue q uses 4",
        ExitCode.OK,
    ),
    "asks for more than its quota": (
        [status(queue={"reason": "QuotaTooSmall", "message": "the run needs 5, and can never have more than 4"})],
        "llama cannot start as it is: QuotaTooSmall: the run needs 5, and can never have more than 4",
        ExitCode.REFUSED,
    ),
    "is judged late": ([{}, {}, status(), status(queue=WAITS)], "llama waits in queue", ExitCode.OK),
    "was refused before it was changed": ([OUTDATED], "llama is not judged yet", ExitCode.OK),
    "is not judged": ([{}], "llama is not judged yet; lockstep explain llama", ExitCode.OK),
    "is not judged by a webhook": ([status("PodNotJudged", "Unknown")], "llama is not judged yet", ExitCode.OK),
    "cannot be read": ([Unreachable("no answer")], "cannot be read: no answer", ExitCode.OK),
}


@pytest.mark.parametrize(("statuses", "words", "code"), BECOMES.values(), ids=BECOMES)
def test_what_becomes_of_a_run_is_told_on_stderr_and_by_the_exit_code(
    statuses: list[dict[str, Any] | CliError],
    words: str,
    code: ExitCode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(verdicts.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    server = CliServer({"trainingruns/llama": looks("llama", statuses)})
    assert tell_verdicts(server, [sample.run("llama", status={})]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert now[0] <= verdicts.PATIENCE + 1e-6


TOO_LARGE = status(queue={"reason": "Placement", "message": "needs 2 nodes, 0 fit"})
CANNOT_ASK = sample.condition("ScaleUp", "False", "CannotAskForNodes", "write spec.gpusPerNode")


@pytest.mark.parametrize(
    ("queue", "told", "words", "code"),
    [
        ({"scaleUp": "Enabled"}, (), "llama waits in queue default: Placement: needs 2 nodes, 0 fit; nodes may be", 0),
        ({"scaleUp": "Enabled"}, (CANNOT_ASK,), "llama cannot start as it is: Placement", 3),
        ({}, (), "llama cannot start as it is: Placement", 3),
        (None, (), "llama cannot start as it is: Placement", 3),
        (FORBIDDEN, (), "llama cannot start as it is: Placement", 3),
    ],
    ids=["asks", "cannot ask", "asks for none", "no queue", "may not be read"],
)
def test_a_run_for_which_nodes_may_be_made_waits_for_them(
    queue: Any, told: Sequence[dict[str, Any]], words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = sample.run("llama", status=TOO_LARGE | {"conditions": [*TOO_LARGE["conditions"], *told]})
    about = {"metadata": sample.run("default")["metadata"], "spec": queue}
    there = about if isinstance(queue, dict) else queue
    assert tell_verdicts(CliServer({"trainingruns/llama": raw, "trainingqueues/default": there}), [raw]) == code
    assert words in capsys.readouterr().err


def array(**fields: Any) -> dict[str, Any]:
    made = sample.run("sweep", status=fields.pop("status", {}))
    spec = {"indices": "7,3-5", "template": {"spec": GOOD}} | fields
    return made | {"kind": names.RUN_SET_KIND, "spec": spec}


OF_ARRAYS: dict[str, tuple[list[dict[str, Any] | CliError | None], str, ExitCode]] = {
    "waits": (
        [None, {}, status(queue=WAITS)],
        "sweep is accepted; its first run sweep-3 waits in queue default at position 3: Resources",
        ExitCode.OK,
    ),
    "names no queue": (
        [None, status(queue={"reason": "QueueNotFound", "message": "there is no TrainingQueue reserch"})],
        "sweep is accepted; its first run sweep-3 is refused: there is no TrainingQueue reserch\n  It stays",
        ExitCode.REFUSED,
    ),
    "is refused": (
        [status("ClaimNotFound", "False")],
        "sweep-3 is refused: words\n  It stays, and goes on once that is corrected. lockstep cancel sweep ends it.",
        ExitCode.REFUSED,
    ),
    "is not made yet": ([None], "sweep is accepted\n", ExitCode.OK),
    "may not be read": ([FORBIDDEN], "sweep is accepted\n", ExitCode.OK),
}


@pytest.mark.parametrize(("first", "words", "code"), OF_ARRAYS.values(), ids=OF_ARRAYS)
def test_of_an_array_what_becomes_of_its_first_run_is_told(
    first: list[dict[str, Any] | CliError | None],
    words: str,
    code: ExitCode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(verdicts.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    there = {"trainingrunsets/sweep": array(status=status()), "trainingruns/sweep-3": looks("sweep-3", first)}
    assert tell_verdicts(CliServer(there), [array()]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert now[0] <= verdicts.PATIENCE + 1e-6


def test_an_array_that_is_held_has_no_first_run_to_wait_for(capsys: pytest.CaptureFixture[str]) -> None:
    held = array(suspend=True, status=status())
    assert tell_verdicts(CliServer(), [held]) == ExitCode.OK
    assert capsys.readouterr().err == "sweep is held; lockstep release sweep lets it go\n"


def test_of_several_runs_each_is_told_within_the_same_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(verdicts.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    created = [sample.run(name, status={}) for name in ("one", "two", "three")]
    created[2]["status"] = status("PodRefused", "False")
    server = CliServer({f"trainingruns/{name}": sample.run(name) for name in ("one", "two", "three")})
    assert tell_verdicts(server, created) == ExitCode.REFUSED
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines() if line[0] != " "] == [
        "one",
        "two",
        "three",
    ]
    assert now[0] <= verdicts.PATIENCE + 1e-6


def run_by_http(asked: list[str], claims: int, **spec: Any) -> Any:
    """A server that takes a run, refuses it later, and has no claim (404) or any (200)."""

    def answer(request: Any) -> None:
        asked.append(f"{request.command} {request.path.partition('?')[0]}")
        if "persistentvolumeclaims/" in request.path and claims == 404:
            refuses(404, "NotFound", "not found", name="lustre")(request)
        elif "/trainingrunsets/" in request.path:
            refuses(404, "NotFound", "not found", name="llama")(request)
        elif request.path.partition("?")[0].endswith("/trainingruns/llama"):
            says(200, sample.run("llama", status=status("PodRefused", "False")))(request)
        else:
            says(200, sample.run("llama", status={}, **spec))(request)

    return answer


@pytest.mark.parametrize("form", ["name", "json", "yaml"])
def test_what_is_done_before_the_limit_is_told_beside_whatever_is_printed(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, checkpoint = tmp_path / "run.yaml", {"shared": {"claimName": "lustre"}}
    path.write_text(yaml.safe_dump(manifest(timeLimit="30m", checkpoint=checkpoint)))
    with answering(run_by_http([], 200, timeLimit="30m")) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        with pytest.raises(SystemExit):
            main(["submit", str(path), "--no-wait", "-o", form])
    assert "after 20m all ranks are asked to save" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "claims", "code", "words", "is_created"),
    [
        ([], 200, 3, "llama is refused: words", True),
        (["--no-wait"], 200, 0, "", True),
        (["--no-wait"], 404, 0, "", True),
        ([], 404, 1, "there is no PersistentVolumeClaim lustre in namespace team", False),
        (["--test-only"], 404, 1, "there is no PersistentVolumeClaim lustre in namespace team", False),
        (["--dry-run=server"], 200, 0, "", True),
    ],
)
def test_submit_looks_creates_and_waits_as_it_is_told(
    flags: list[str],
    claims: int,
    code: int,
    words: str,
    is_created: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(manifest(checkpoint={"shared": {"claimName": "lustre"}})))
    with answering(run_by_http(asked, claims)) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        with pytest.raises(SystemExit) as end:
            main(["submit", str(path), *flags])
    said = capsys.readouterr()
    assert int(end.value.code or 0) == code
    assert words in said.err
    assert ("created" in said.out) is is_created
    assert any("persistentvolumeclaims" in each for each in asked) is ("--no-wait" not in flags)
