"""Which processes of a node are asked to end, and which to save, whatever started them."""

import os
from dataclasses import dataclass

import pytest

from lockstep.worker.child import processes
from lockstep.worker.child.processes import Process, catching, terminate
from lockstep.worker.child.training import all_but_ray


@dataclass(frozen=True)
class Tree:
    """Processes by name: (name, its parent's name, its process group's, whether it catches the signal)."""

    rows: tuple[tuple[str, str, str, bool], ...]

    def pid(self, name: str) -> int:
        return 1000 + [row[0] for row in self.rows].index(name) if name else 1

    def all(self) -> list[Process]:
        return [
            Process(self.pid(name), self.pid(parent), "S", name.partition(":")[0][:15], self.pid(group or name))
            for name, parent, group, _ in self.rows
        ]

    def names(self, pids: set[int]) -> set[str]:
        return {name for name, *_ in self.rows if self.pid(name) in pids}


RANK_0 = Tree((
    ("bash", "", "", True),
    ("mpirun", "bash", "bash", True),
    ("python:local", "mpirun", "", True),
    ("python:loader", "python:local", "python:local", True),
    ("lockstep-step", "mpirun", "mpirun", True),
    ("python3:patterns", "", "", False),
    ("lockstep-server", "", "", True),
))  # fmt: skip
OTHER = Tree((
    ("lockstep-server", "", "", True),
    ("lockstep-server:session", "lockstep-server", "lockstep-server", True),
    ("sh", "lockstep-server:session", "", False),
    ("hydra_bstrap_proxy", "sh", "sh", False),
    ("hydra_pmi_proxy", "hydra_bstrap_proxy", "sh", False),
    ("python:1", "hydra_pmi_proxy", "", True),
    ("torchrun", "lockstep-server:session", "", True),
    ("python:2", "torchrun", "", True),
    ("tool", "torchrun", "torchrun", False),
    ("python:orphan", "lockstep-server:session", "", True),
))  # fmt: skip
TUNNEL = Tree((
    ("python:train", "", "", True),
    ("ssh", "python:train", "python:train", False),
    ("python:loader", "python:train", "python:train", True),
))  # fmt: skip


PIPED = Tree((
    ("bash", "", "", False),
    ("lockstep-step", "bash", "bash", True),
    ("tee", "bash", "bash", False),
    ("monitor", "bash", "bash", True),
    ("tee:all", "bash", "bash", False),
    ("torchrun", "bash", "bash", True),
    ("grep", "bash", "bash", False),
    ("gzip", "grep", "bash", False),
    ("yes", "bash", "bash", False),
    ("python:train", "bash", "bash", True),
    ("cat", "bash", "bash", False),
    ("python:plain", "bash", "bash", False),
))  # fmt: skip
PIPES = {  # what each reads and says; one whose end would take along what saves is not asked
    "bash": ("", "0"), "tee:all": ("0", ""), "lockstep-step": ("", "1"), "tee": ("1", "2"), "monitor": ("2", "0"),
    "torchrun": ("", "3"), "grep": ("3", "0"), "gzip": ("9", "0"), "yes": ("", "4"), "python:train": ("4", "0"),
    "cat": ("", "5"), "python:plain": ("5", "0"),
}  # fmt: skip


RAY = (  # and the session of each
    ("lockstep-ray", "", False, "lockstep-ray"),
    ("ray", "lockstep-ray", True, "ray"),
    ("raylet", "ray", True, "ray"),
    ("gcs_server", "ray", True, "ray"),
    ("python:agent", "lockstep-ray", True, "ray"),
    ("ray::IDLE", "raylet", True, "ray"),
    ("bash", "lockstep-ray", False, "lockstep-ray"),
    ("python:driver", "bash", True, "lockstep-ray"),
    ("python:loader", "python:driver", True, "lockstep-ray"),
    ("lockstep-server", "", True, "lockstep-server"),
    ("python:step", "lockstep-server", True, "python:step"),
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    told: set[int] = set()
    monkeypatch.setattr(os, "kill", lambda pid, number: told.add(pid))
    return told


@pytest.mark.parametrize(
    ("tree", "child", "first", "last"),
    [
        (RANK_0, "bash", {"python:local", "python:loader"}, {"bash", "mpirun", "lockstep-step"}),
        (
            OTHER, "lockstep-server", {"python:1", "torchrun", "tool", "python:orphan"},
            {"sh", "hydra_bstrap_proxy", "hydra_pmi_proxy"},
        ),
        (TUNNEL, "python:train", {"python:train", "python:loader", "ssh"}, set()),
        (PIPED, "bash", {"torchrun", "yes", "python:train", "cat", "python:plain"}, {"bash", "lockstep-step"}),
    ],
)  # fmt: skip
def test_ranks_are_asked_to_end_first_and_what_started_them_last(
    monkeypatch: pytest.MonkeyPatch, sent: set[int], tree: Tree, child: str, first: set[str], last: set[str]
) -> None:
    none = processes._Pipes("", set())
    pipes = {PIPED.pid(name): processes._Pipes(read, {said} - {""}) for name, (read, said) in PIPES.items()}
    monkeypatch.setattr(processes, "other_processes", tree.all)
    monkeypatch.setattr(processes, "catches", lambda pid, number: tree.rows[pid - 1000][3])
    monkeypatch.setattr(processes, "_pipes_of", lambda pid: pipes[pid] if tree is PIPED else none)
    terminate(tree.pid(child), launchers=False)
    assert tree.names(sent) == first
    sent.clear()
    terminate(tree.pid(child), launchers=True)
    assert tree.names(sent) == last


@pytest.mark.parametrize(
    ("tree", "asked"),
    [
        (RANK_0, {"python:local"}),
        (OTHER, {"python:1", "torchrun", "python:orphan"}),
        (TUNNEL, {"python:train"}),
        (Tree((("bash", "", "", True), ("mpirun", "bash", "", True))), {"bash"}),
    ],
    ids=["a launcher", "its daemons", "a program with a tunnel", "no rank catches it"],
)
def test_requests_to_save_reach_ranks_and_no_launcher(
    monkeypatch: pytest.MonkeyPatch, tree: Tree, asked: set[str]
) -> None:
    monkeypatch.setattr(processes, "other_processes", tree.all)
    monkeypatch.setattr(processes, "catches", lambda pid, number: tree.rows[pid - 1000][3])
    assert tree.names(set(catching(10))) == asked


@pytest.mark.parametrize(("driven", "asked"), [(True, {"python:driver", "python:step"}), (False, {"python:step"})])
def test_requests_to_save_reach_the_driver_and_nothing_of_ray(
    monkeypatch: pytest.MonkeyPatch, driven: bool, asked: set[str]
) -> None:
    rows = [row for row in RAY if driven or not row[0].startswith(("bash", "python:driver", "python:loader"))]
    tree = Tree(tuple((name, parent, "", catches) for name, parent, catches, _ in rows))
    sessions = {tree.pid(name): tree.pid(session) for name, _, _, session in rows}
    monkeypatch.setattr(
        processes, "other_processes", lambda: [each._replace(session=sessions[each.pid]) for each in tree.all()]
    )
    monkeypatch.setattr(processes, "catches", lambda pid, number: tree.rows[pid - 1000][3])
    assert tree.names(set(all_but_ray(tree.pid("lockstep-ray"), 10))) == asked
