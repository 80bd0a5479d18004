"""Arrays as they are submitted: what is created of flags and manifests, and what is refused in whose words."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.cli.errors import CliError
from lockstep.cli.main import main
from lockstep.cli.submission import refusals
from lockstep.cli.submission.taken_names import refuse_taken
from support import sample_runs as sample
from support.sweeps import sweep, with_sweep


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as end:
        main(["submit", "--dry-run=client", "-o", "json", *words])
    said = capsys.readouterr()
    assert not end.value.code, said.err
    made: dict[str, Any] = json.loads(said.out)
    return made


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["submit", "--dry-run=client", *words])
    assert end.value.code in (1, 2)
    return " ".join(capsys.readouterr().err.split())


COMMAND = ("--image", "trainer", "--", "python", "train.py")


def test_an_array_is_submitted_as_with_sbatch(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--name", "sweep", "-N", "2", "-a", "0-99%8", "-d", "afterok:tokenize,aftercorr:prepare", "--hold")
    made = printed(capsys, *flags, "-t", "2h", *COMMAND)
    assert (made["kind"], made["metadata"]) == ("TrainingRunSet", {"name": "sweep"})
    spec = made["spec"]
    ours = {field: value for field, value in spec.items() if field != "template"}
    assert ours == {"indices": "0-99", "maxRunning": 8, "afterCorr": "prepare", "suspend": True}
    assert spec["template"]["spec"] == {
        "nodes": 2,
        "image": "trainer",
        "command": ["python", "train.py"],
        "timeLimit": "2h",
        "dependsOn": [{"name": "tokenize", "condition": "Succeeded"}],
    }


def test_a_name_for_an_array_leaves_room_for_its_indices(capsys: pytest.CaptureFixture[str]) -> None:
    made = printed(capsys, "-a", "1", "--image", "i", "--", "python", f"{'long-' * 12}name.py")
    assert len(made["metadata"]["generateName"]) + 5 <= names.MAX_RUN_SET_NAME


def test_a_manifest_of_a_run_becomes_an_array(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    annotations = {"note": "x", names.ANNOTATION_USER: "kim"}
    metadata = {"name": "sweep", "labels": {"team": "nlp"}, "annotations": annotations}
    body = sample.run() | {"metadata": metadata}
    del body["status"]
    file.write_text(json.dumps(body))
    made = printed(capsys, str(file), "--array", "1,3")
    assert made["metadata"] == metadata
    assert made["spec"]["template"]["metadata"] == {"labels": {"team": "nlp"}, "annotations": {"note": "x"}}
    assert "maxRunning" not in made["spec"]


def test_a_manifest_of_an_array_is_taken_and_flags_go_where_they_belong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "set.yaml"
    body = sweep()
    del body["status"]
    file.write_text(json.dumps(body))
    made = printed(capsys, str(file), "-H", "-t", "90", "-d", "aftercorr:prepare")
    assert (made["spec"]["suspend"], made["spec"]["afterCorr"]) == (True, "prepare")
    assert made["spec"]["template"]["spec"]["timeLimit"] == "1h30m"
    body["spec"]["template"]["spec"] = sample.SPEC | {"gpuPerNode": 8}
    file.write_text(json.dumps(body))
    assert "spec.template.spec.gpuPerNode: unknown field; write gpusPerNode" in refused(capsys, str(file))
    body["spec"]["template"]["spec"] = sample.SPEC | {"resourcesPerNode": {"gpu": 8}}
    file.write_text(json.dumps(body))
    assert "spec.template.spec.resourcesPerNode[gpu]: is no resource" in refused(capsys, str(file))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-a", "9-0", *COMMAND), "a range goes up"),
        (("-a", "0-9%x", *COMMAND), "no width behind the %"),
        (("-a", "0-9%0", *COMMAND), "would let nothing start"),
        (("-a", "0-20000", *COMMAND), "more than 10000 indices"),
        (("-d", "aftercorr:prepare", *COMMAND), "aftercorr is for arrays"),
        (("-a", "0", "-d", "aftercorr:a:b", *COMMAND), "an array comes after one"),
        (("-a", "0", "-d", "aftercorr", *COMMAND), "names no run"),
    ],
)
def test_what_no_array_can_be_made_of_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, *words)


@pytest.mark.parametrize("flag", ["--wait", "--test-only"])
def test_what_is_for_single_runs_is_refused(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "-a", "0-3", flag, *COMMAND])
    assert "are for single runs" in capsys.readouterr().err


def test_a_problem_of_the_template_is_named_where_it_stands() -> None:
    with pytest.raises(CliError, match=r"spec.template.spec.resourcesPerNode\[gpu\]"):
        refusals.refuse_bad(sweep(template={"spec": sample.SPEC | {"resourcesPerNode": {"gpu": 8}}}), {})


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"kind": "TrainingRun", "name": "sweep"}, "there is an array sweep in namespace team, and a run needs a name"),
        ({"kind": "TrainingRun", "name": "sweep-60"}, "sweep-60 is the name of a run of the array sweep"),
        ({"kind": "TrainingRunSet", "name": "big"}, "there is a run big in namespace team, and an array needs a name"),
        ({"kind": "TrainingRun", "name": "sweep-43"}, ""),  # the API server says that there is one
        ({"kind": "TrainingRun", "name": "sweep-200"}, ""),
        ({"kind": "TrainingRun", "name": "big"}, ""),
        ({"kind": "TrainingRun", "name": "other-1"}, ""),
        ({"kind": "TrainingRunSet", "name": "sweep"}, ""),
        ({"kind": "TrainingRunSet", "name": "ended"}, ""),
        ({"kind": "TrainingRun", "name": None}, ""),
    ],
)
def test_a_run_and_an_array_do_not_get_one_name(manifest: dict[str, Any], words: str) -> None:
    server = with_sweep()
    server.objects["trainingruns/big"] = sample.run("big")
    server.objects["trainingruns/ended"] = sample.run(
        "ended", status={"conditions": [sample.condition("Finished", "True", "Succeeded")]}
    )
    body = {"apiVersion": names.API_VERSION, "kind": manifest["kind"], "metadata": {"name": manifest["name"]}}
    with pytest.raises(CliError, match=words) if words else nullcontext():
        refuse_taken(server, body)
