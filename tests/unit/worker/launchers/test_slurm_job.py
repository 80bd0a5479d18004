"""A batch job as its workers have it: what START says, and the files that programs read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.launchers import slurm
from lockstep.worker.launchers.slurm import batch_files, batch_of, read_job, shell_environment, write_job

JOB: dict[str, Any] = {
    "id": 123, "nodes": ["10.9.0.1", "10.9.0.2"], "cpus": [72, 72], "gpus": 0, "name": "train", "user": "ann",
    "uid": 1000, "partition": "gpu", "cluster": "main", "submit_dir": "/home/ann", "submit_host": "login",
    "start_time": 1, "end_time": 0, "more": "of a later version",
}  # fmt: skip
ARRAY = {"job": 120, "task": 3, "tasks": 4, "least": 0, "most": 3, "step": 1}


def given(job: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"job": {**JOB, **(job or {})}, "directory": "/work", **more}


@pytest.mark.parametrize(
    ("said", "files"),
    [
        ({}, ("", "/work/slurm-123.out", "/work/slurm-123.out")),
        ({"job": {"array": ARRAY}}, ("", "/work/slurm-120_3.out", "/work/slurm-120_3.out")),
        ({"output": "%x.%j.%N.%u", "error": "/logs/%A"}, ("", "/work/train.123.10.9.0.1.ann", "/logs/123")),
        ({"output": "a", "error": "a", "input": "in.%j"}, ("/work/in.123", "/work/a", "/work/a")),
        ({"directory": "", "input": "/dev/null"}, ("", "slurm-123.out", "slurm-123.out")),
        ({"job": {"restarts": 2}, "output": "o.%r.%t.%n"}, ("", "/work/o.2.0.0", "/work/o.2.0.0")),
    ],
)
def test_files_have_the_names_that_their_patterns_mean(said: dict[str, Any], files: tuple[str, str, str]) -> None:
    assert batch_files(batch_of(given(**said))) == files


def test_every_word_for_a_node_is_known_and_its_address_is_one(tmp_path: Path) -> None:
    assert batch_of(given()).words == [["10.9.0.1"], ["10.9.0.2"]]
    words = [["node-a.example", "node-a"], ["node-b"]]
    assert batch_of(given(words=words)).words == [["10.9.0.1", "node-a.example", "node-a"], ["10.9.0.2", "node-b"]]


@pytest.mark.parametrize(
    ("signal", "shell_only"), [("USR1@60", False), ("B:USR1@60", True), ("RB:TERM", True), ("nonsense", False)]
)
def test_a_signal_may_be_for_the_shell_alone(signal: str, shell_only: bool) -> None:
    assert batch_of(given({"said": {"signal": signal}})).signals_shell_only is shell_only
    assert not batch_of(given()).signals_shell_only


def test_programs_read_the_job_and_the_script_is_the_first_nodes(tmp_path: Path) -> None:
    for rank, script in ((0, "#!/bin/sh\necho \u00e9\r\n"), (1, "")):
        steps = tmp_path / str(rank) / "steps"
        steps.mkdir(parents=True)
        write_job(str(steps), given(script=script, arguments=["a"]) if script else given(arguments=["a"]))
        assert read_job(str(steps)).arguments == ["a"]
        assert "script" not in json.loads((steps / "job.json").read_text())
        path = Path(slurm.script_of(str(steps)))
        assert path.exists() is bool(script)
        if script:
            assert path.read_bytes() == script.encode()
            assert os.access(path, os.X_OK)


@pytest.mark.parametrize(
    "broken",
    [{}, {"job": {}}, given({"cpus": [1]}), given(words=[["one"]]), {"job": None}, given({"nodes": [], "cpus": []})],
)
def test_what_is_no_job_is_refused(broken: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        write_job(str(tmp_path / "steps"), broken)


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("#!/bin/sh -e\n", ""),
        ("#! /bin/sh\n", ""),
        ("#!/usr/bin/env nothing\n", ""),
        ("#!/no/sh\n", "/no/sh"),
        ("x\n", ""),
    ],
)
def test_an_interpreter_that_the_image_lacks_is_named(script: str, missing: str, tmp_path: Path) -> None:
    (tmp_path / slurm.SCRIPT).write_text(script)
    assert slurm.missing_interpreter(str(tmp_path / "steps")) == missing


def test_slurms_variables_come_before_the_pods() -> None:
    made = shell_environment(batch_of(given()), {"A": "1", "SLURM_JOB_ID": "9"})
    assert (made["A"], made["SLURM_JOB_ID"], made["SLURM_JOBID"]) == ("1", "123", "123")
