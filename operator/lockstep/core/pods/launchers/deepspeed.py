"""DeepSpeed: its launcher for one node on every node, from a ``deepspeed`` command as it is typed.

``deepspeed`` itself reads the list of nodes from a file and reaches them by ssh. Here the gang is that list, and each
worker starts what ``deepspeed`` would have started there (``deepspeed.launcher.launch``).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem

_PROGRAMS = frozenset({"deepspeed", "deepspeed.pt", "ds"})
_TOLD_ON = {
    **dict.fromkeys(("--module", "--no_python", "--no_local_rank", "--bind_cores_to_rank"), 0),
    **dict.fromkeys(("--enable_each_rank_log", "--bind_core_list", "--log_level"), 1),
}
"""Flags that the launcher of a node takes as well, and how many words follow them."""
_MOOT = {"--no_ssh": 0, "--no_ssh_check": 0, "--force_multi": 0, "--ssh_port": 1}
"""They say how nodes are reached, which nobody does here: no node's part is another one for them."""
_NODES = "the gang is the list of nodes; leave it out, and write spec.nodes or spec.placement"
_SIZE = "a gang changes its size by spec.elastic; leave it out"
_REFUSED = {
    **dict.fromkeys(("-H", "--hostfile", "-i", "--include", "-e", "--exclude", "--num_nodes"), _NODES),
    **dict.fromkeys(("--num_gpus", "--num_accelerators"), "leave it out, and write spec.gpusPerNode"),
    **dict.fromkeys(
        ("--master_addr", "--master_port", "--node_rank"), "each attempt has its own, set by Lockstep; leave it out"
    ),
    **dict.fromkeys(
        ("--launcher", "--launcher_args"),
        "every node's worker starts DeepSpeed's own launcher there; leave it out, or write launcher.type: MPI with "
        "command: [mpirun, ...]",
    ),
    **dict.fromkeys(("--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"), _SIZE),
    "--autotuning": "it starts trainings of its own one after the other; leave it out, and tune in a run of its own",
    "--save_pid": "it is for whoever ends the training by its process id; leave it out, and cancel the run",
    "--venv_script": "leave it out, and write the environment's own deepspeed, as /venv/bin/deepspeed",
}
_VALUES = {**dict.fromkeys(_REFUSED, 1), "--elastic_training": 0, "--save_pid": 0, **_TOLD_ON, **_MOOT}
"""How many words follow a flag."""
_UNKNOWN = "is no flag of DeepSpeed's that is known here; write its whole name, or leave it out"
_LONGEST_ARGUMENT = 128 * 1024
"""Bytes that the kernel takes: DeepSpeed's launcher is told all nodes in one."""
_LONGEST_ENTRY = len('"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff":,')


@dataclass(frozen=True, slots=True)
class _Typed:
    """A command read: how many of its words are ``deepspeed`` and its flags, and which flags are told on. A number
    is the place of a word of the user's."""

    words: int
    flags: tuple[str | int, ...]
    problems: tuple[str, ...]


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Processes of a node, one for each GPU; how many words the entrypoint and ``deepspeed`` with its flags are; and
    the flags for the launcher of a node."""
    typed = _read(spec.command)
    return {
        "slotsPerNode": max(gpus_per_node, 1),
        "entrypoint": len(spec.entrypoint),
        "words": typed.words,
        "flags": list(typed.flags),
    }


def deciding_ranks(world_size: int) -> range:
    """All: every node's launcher ends with its own processes' code."""
    return range(world_size)


def steps(spec: TrainingRunSpec) -> bool:
    """Always: scripts call ``deepspeed --hostfile`` and ``ssh`` too."""
    return True


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """Flags that choose nodes, which the gang does; and a command that is none of DeepSpeed's."""
    return list(_problems(spec))


def _problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    program = spec.command[0].rpartition("/")[2]
    if program not in _PROGRAMS:
        words = "launcher.type DeepSpeed takes a command that begins with deepspeed"
        yield Problem("spec.command", f"{words}: write [deepspeed, train.py, ...], or leave launcher out")
        return
    yield from (Problem("spec.command", words) for words in _read(spec.command).problems)
    slots = len(json.dumps(list(range(max(spec.gpus_per_node or 0, 1))), separators=(",", ":")))
    most = _LONGEST_ARGUMENT * 3 // 4 // (_LONGEST_ENTRY + slots)
    if spec.nodes > most:
        words = f"DeepSpeed's launcher is told all nodes in one argument, which has room for {most}"
        yield Problem("spec.nodes", f"{words}; lower it, or write launcher.type: Torchrun")


def _read(command: Sequence[str]) -> _Typed:
    flags: list[str | int] = []
    wrong: list[str] = []
    at = 1
    while at < len(command) and command[at].startswith("-"):
        name, has_value, _ = command[at].partition("=")
        follow = 0 if has_value else _VALUES.get(name, 0)
        if name in ("-q", "--quiet"):
            flags.append("--quiet")
        elif name in _TOLD_ON:
            flags.extend(range(at, min(at + 1 + follow, len(command))))
        elif name not in _MOOT:
            wrong.append(f"{name}: {_REFUSED.get(name, _UNKNOWN)}")
        at += 1 + follow
    if at >= len(command):
        wrong.append("names no script; write [deepspeed, train.py, ...]")
    return _Typed(min(at, len(command)), tuple(flags), tuple(wrong))
