"""How the worker turns START into a command, and what it makes of the progress file."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from lockstep.api.run_spec import LauncherType
from lockstep.worker.child import progress
from lockstep.worker.child.launch import (
    command_environment,
    expand,
    launcher_command,
    launcher_environment,
    python_environment,
)
from lockstep.worker.child.progress import ProgressTail, Section, parse_line
from lockstep.worker.node.preflight import MASTER_PORTS, hold_port
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch


def settings(command: list[str], **more: Any) -> Settings:
    return Settings(
        operator_url="https://10.0.0.1:1", namespace="team", run="hello", run_uid="u", slot=0, incarnation=1,
        pod_uid="p", command=command, **more,
    )  # fmt: skip


LAUNCH = Launch(2, 1, 4, "10.1.0.1", 40123, "", "", [])
FLAGS = ["--nnodes=4", "--node-rank=1", "--nproc-per-node=8", "--master-addr=10.1.0.1", "--master-port=40123"]


@pytest.mark.parametrize(
    ("command", "entrypoint", "expected"),
    [
        (["python", "train.py", "-x"], 0, ["torchrun", *FLAGS, "train.py", "-x"]),
        (["python3.11", "-u", "-m", "pkg.train"], 0, ["torchrun", *FLAGS, "-m", "pkg.train"]),
        (["/venv/bin/python", "train.py"], 0, ["/venv/bin/torchrun", *FLAGS, "train.py"]),
        (["train.py", "--lr", "1"], 0, ["torchrun", *FLAGS, "train.py", "--lr", "1"]),
        (["/src/train.py"], 0, ["torchrun", *FLAGS, "/src/train.py"]),
        (["-m", "pkg.train"], 0, ["torchrun", *FLAGS, "-m", "pkg.train"]),
        (["./train.sh"], 0, ["torchrun", *FLAGS, "--no-python", "./train.sh"]),
        (["python", "-u", "-O", "t.py"], 0, ["torchrun", *FLAGS, "--no-python", "python", "-u", "-O", "t.py"]),
        (["/v/python", "-c", "x"], 0, ["/v/torchrun", *FLAGS, "--no-python", "/v/python", "-c", "x"]),
        (["python"], 0, ["torchrun", *FLAGS, "--no-python", "python"]),
        (["/entry.sh", "-e", "python", "train.py"], 2, ["/entry.sh", "-e", "torchrun", *FLAGS, "train.py"]),
    ],
)
def test_torchrun_takes_the_interpreters_place(command: list[str], entrypoint: int, expected: list[str]) -> None:
    options = {"nprocPerNode": 8, "entrypoint": entrypoint}
    made = settings(command, launcher="Torchrun", launcher_options=options)
    assert launcher_command(made, LAUNCH) == expected


DEEPSPEED = ["--master_addr=10.1.0.1", "--master_port=40123"]


@pytest.mark.parametrize(
    ("command", "options", "before", "after"),
    [
        (["deepspeed", "train.py", "-x"], {"words": 1}, ["python"], ["train.py", "-x"]),
        (
            ["/entry.sh", "/venv/bin/deepspeed", "-q", "--log_level", "info", "--module", "pkg.train"],
            {"entrypoint": 1, "words": 5, "flags": ["--quiet", 2, 3, 4]},
            ["/entry.sh", "/venv/bin/python"],
            ["--quiet", "--log_level", "info", "--module", "pkg.train"],
        ),
    ],
)
def test_deepspeeds_launcher_of_one_node_takes_its_place(
    command: list[str], options: dict[str, Any], before: list[str], after: list[str]
) -> None:
    made = settings(command, launcher="DeepSpeed", launcher_options={"slotsPerNode": 2, **options})
    words = launcher_command(made, LAUNCH._replace(nodelist=["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"]))
    told = words.pop(len(before) + 3)
    assert words == [*before, "-u", "-m", "deepspeed.launcher.launch", "--node_rank=1", *DEEPSPEED, *after]
    world = json.loads(base64.urlsafe_b64decode(told.partition("=")[2]))
    assert list(world.items()) == [(f"10.1.0.{rank + 1}", [0, 1]) for rank in range(4)], "in the order of ranks"
    assert launcher_environment(made, LAUNCH) == {}


@pytest.mark.parametrize(
    ("first_line", "interpreter"),
    [
        ("#!/opt/conda/bin/python3.11", "/opt/conda/bin/python3.11"),
        ("#!/usr/bin/env python3", "python3"),
        ("#!/bin/sh", "{beside}/python"),
        ("\x7fELF", "{beside}/python"),
    ],
)
def test_deepspeed_is_run_by_the_python_that_it_is_installed_for(
    tmp_path: Path, first_line: str, interpreter: str
) -> None:
    script = tmp_path / "deepspeed"
    script.write_text(f"{first_line}\nimport sys\n", encoding="latin-1")
    script.chmod(0o755)
    made = settings([str(script), "train.py"], launcher="DeepSpeed", launcher_options={"words": 1})
    assert launcher_command(made, LAUNCH)[0] == interpreter.format(beside=tmp_path)


def test_mpi_is_told_where_rank_0_is() -> None:
    made = settings(["mpirun", "train"], launcher="MPI", gpus=8)
    assert {"MASTER_ADDR": "10.1.0.1", "MASTER_PORT": "40123"}.items() <= launcher_environment(made, LAUNCH).items()
    assert launcher_command(made, LAUNCH) == ["mpirun", "train"]


def test_what_each_launcher_adds_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/worker.md").read_text(encoding="utf-8")
    rows = page.partition("| Launcher | What it adds |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)) == set(get_args(LauncherType)), (
        "each needs a row in docs/worker.md"
    )


def test_mpi_is_told_of_its_gang_and_the_command_stays() -> None:
    made = settings(["mpirun", "python", "train.py"], launcher="MPI", address="127.0.0.1")
    launch = LAUNCH._replace(nodelist=["10.1.0.1", "10.1.0.2"])
    assert launcher_command(made, launch) == ["mpirun", "python", "train.py"]
    environment = launcher_environment(made, launch)
    assert environment["MASTER_ADDR"] == "10.1.0.1"
    assert environment["OMPI_MCA_orte_default_hostfile"] == "/run/lockstep/a2/hostfile"
    assert environment["HYDRA_IFACE"] == "lo"
    assert "NODE_RANK" not in environment  # mpirun says who is who


def test_plain_and_jax_leave_the_command_alone() -> None:
    for launcher in ("Plain", "JAX"):
        made = settings(["torchrun", "train.py"], launcher=launcher, gpus=8)
        assert launcher_command(made, LAUNCH) == ["torchrun", "train.py"]


def test_plain_makes_a_bare_torchrun_find_its_peers() -> None:
    made = launcher_environment(settings(["torchrun"], gpus=8), LAUNCH)
    assert made["PET_NNODES"] == "4"
    assert made["PET_NODE_RANK"] == "1"
    assert made["PET_NPROC_PER_NODE"] == "8"
    assert made["PET_RDZV_BACKEND"] == "static"
    assert made["MASTER_ADDR"] == "10.1.0.1"


@pytest.mark.parametrize(("address", "endpoint"), [("10.1.0.1", "10.1.0.1:40123"), ("fd00::1", "[fd00::1]:40123")])
def test_jax_gets_its_coordinator(address: str, endpoint: str) -> None:
    made = launcher_environment(settings(["x"], launcher="JAX"), LAUNCH._replace(master_address=address))
    assert made == {"JAX_COORDINATOR_ADDRESS": endpoint, "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "1"}


@pytest.mark.parametrize(
    ("argument", "expanded"),
    [
        ("--resume=$(LOCKSTEP_RESUME_PATH)", "--resume=/ckpt"),
        ("$(LOCKSTEP_RESUME_PATH)$(LOCKSTEP_ATTEMPT)", "/ckpt2"),
        ("$$(LOCKSTEP_ATTEMPT)", "$(LOCKSTEP_ATTEMPT)"),
        ("$$$(LOCKSTEP_ATTEMPT)", "$2"),
        ("$$$$(LOCKSTEP_ATTEMPT)", "$$(LOCKSTEP_ATTEMPT)"),
        ("$(LOCKSTEP_NO_SUCH)", "$(LOCKSTEP_NO_SUCH)"),
        ("$(HOME) $$ $LOCKSTEP_ATTEMPT $(", "$(HOME) $$ $LOCKSTEP_ATTEMPT $("),
    ],
)
def test_expansion_follows_kubernetes(argument: str, expanded: str) -> None:
    assert expand(argument, {"LOCKSTEP_RESUME_PATH": "/ckpt", "LOCKSTEP_ATTEMPT": "2"}) == expanded


def test_settings_without_a_command_are_refused() -> None:
    with pytest.raises(ValueError, match="no command"):
        Settings.from_environment({}, ["--"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"step": 3}', (3, "", None, 50.0)),
        (b'{"step": 3, "loss": 2.5000, "total_steps": 10, "time": 7.5}', (3, "2.5000", 10, 7.5)),
        (b'{"step": 3.0, "loss": NaN}', (3, "NaN", None, 50.0)),
        (b'{"step": "4", "loss": "low"}', (4, "low", None, 50.0)),
        (b'{"step": -1}', None),
        (b'{"step": 1e400}', None),
        (b'{"loss": 1}', None),
        (b"[1]", None),
        (b"\xff\xfe", None),
        (b"step 3", None),
        (b"", None),
    ],
)
def test_a_progress_line_is_understood_or_passed_over(line: bytes, expected: Any) -> None:
    progress = parse_line(line, 50.0)
    assert not isinstance(progress, Section)
    found = progress and (progress["step"], progress["loss"], progress["totalSteps"], progress["at"])
    assert found == expected


def test_progress_is_read_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    tail = ProgressTail(str(path))
    assert tail.read(1.0) == []  # nothing there yet

    def after(data: bytes) -> list[int]:
        with path.open("ab") as stream:
            stream.write(data)
        return [entry["step"] for entry in tail.read(1.0) if not isinstance(entry, Section)]

    assert after(b'{"step": 1}\n{"step": 2}\nrubbish\n{"st') == [1, 2]
    assert after(b'ep": 3}') == []
    assert after(b"\n") == [3]
    assert after(b"") == []
    assert after(b'{"step": 9}\n' + b"x" * 5_000_000 + b'\n{"step": 4}\n') == [4]  # of very much only the newest
    path.write_bytes(b'{"step": 1}\n')  # written anew
    assert after(b"") == [1]


def test_sections_are_told_apart_from_progress(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text('{"section": "Save", "step": 7, "time": 3.0}\n{"section": "Lunch"}\n{"step": 8, "time": 4.0}\n')
    save, step = ProgressTail(str(path)).read(1.0)
    assert save == Section("Save", 3.0)
    assert not isinstance(step, Section)
    assert step["step"] == 8


def test_the_port_held_for_the_master_is_nobody_elses() -> None:
    with hold_port() as held, hold_port() as other:
        assert held.getsockname()[1] in MASTER_PORTS
        assert held.getsockname()[1] != other.getsockname()[1]


@pytest.mark.parametrize("mode", ["ab", "wb"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_progress_file_that_has_grown_large_is_emptied_once_it_is_read_and_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, pieces: int
) -> None:
    """Whether it is appended to, or written at a place of the writer's own."""
    monkeypatch.setattr(progress, "MAX_KEPT", 100)
    monkeypatch.setattr(progress, "MAX_UNREAD", 60)
    monkeypatch.setattr(progress, "MAX_PROGRESS_LINE", 20)
    cuts: list[int] = []
    cut = os.ftruncate
    monkeypatch.setattr(os, "ftruncate", lambda file, size: (cuts.append(size), cut(file, size)))
    path = tmp_path / "progress.jsonl"
    path.write_bytes(b"")
    tail, told, largest, written = ProgressTail(str(path)), [], 0, 0
    with path.open(mode, buffering=0) as writer:  # type: ignore[call-overload]
        for step in range(50):
            line = b'{"step": %d}\n' % step
            for piece in (line,) if pieces == 1 else (line[:6], line[6:]):
                written += writer.write(piece)
                told += [entry["step"] for entry in tail.read(1.0) if isinstance(entry, dict)]
            largest = max(largest, path.stat().st_size)
    assert told == list(range(50))
    assert 3 <= len(cuts) <= written // 100
    assert largest < 130 or mode == "wb"


@pytest.mark.slow
def test_the_lines_after_a_hole_that_others_have_made_are_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    with path.open("wb", buffering=0) as writer:
        writer.write(b'{"step": 1}\n' * 200_000)
        tail = ProgressTail(str(path))
        tail.read(1.0)
        os.truncate(path, 0)  # as whoever rotates logs does
        assert tail.read(1.0) == []
        for step in (2, 3):
            writer.write(b'{"step": %d}\n' % step)
            assert [entry["step"] for entry in tail.read(1.0) if isinstance(entry, dict)] == [step]


@pytest.mark.parametrize(
    ("launcher", "command", "installed", "has_it"),
    [
        ("MPI", "mpirun", ["mpiexec.hydra"], False),
        ("MPI", "{}/mpirun", ["mpiexec.hydra"], False),
        ("MPI", "mpirun", ["mpirun", "orterun"], True),
        ("MPI", "mpirun", ["mpirun", "prterun"], True),
        ("MPI", "mpirun", [], True),
        ("Plain", "mpirun", ["mpiexec.hydra"], True),
    ],
)
def test_a_command_whose_environment_becomes_that_of_ranks_elsewhere_has_no_nodes_rank(
    launcher: str, command: str, installed: list[str], has_it: bool, tmp_path: Path
) -> None:
    for program in installed:
        (tmp_path / program).write_text("")
        (tmp_path / program).chmod(0o755)
    path = "/nonexistent" if command.startswith("{}") else str(tmp_path)
    given = {"LOCKSTEP_NODE_RANK": "0", "LOCKSTEP_NNODES": "4", "PATH": path}
    made = command_environment(settings([command.format(tmp_path)], launcher=launcher), given)
    assert made == {name: value for name, value in given.items() if has_it or name != "LOCKSTEP_NODE_RANK"}


@pytest.mark.parametrize(("set_by_the_user", "given"), [(None, "1"), ("", ""), ("0", "0")])
def test_python_prints_as_it_goes_unless_the_user_says_otherwise(set_by_the_user: str | None, given: str) -> None:
    environ = {} if set_by_the_user is None else {"PYTHONUNBUFFERED": set_by_the_user}
    assert python_environment(settings(["python", "train.py"]), LAUNCH, environ)["PYTHONUNBUFFERED"] == given


@pytest.mark.parametrize("launcher", ["MPI", "Slurm"])
def test_ranks_that_share_an_output_write_whole_lines(launcher: str) -> None:
    assert "PYTHONUNBUFFERED" not in python_environment(settings(["mpirun", "a"], launcher=launcher), LAUNCH, {})
