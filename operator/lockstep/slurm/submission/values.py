"""What the value of an option of sbatch says of the request, each read by itself."""

from __future__ import annotations

import re
from typing import Callable, Mapping, Optional, Tuple

from lockstep.slurm import times
from lockstep.slurm.hostlist import expand, of_file
from lockstep.slurm.layout import MOST_TASKS_OF_NODE
from lockstep.slurm.signals import notice
from lockstep.slurm.sizes import mebibytes, node_count
from lockstep.slurm.submission.dependencies import dependencies

Reader = Callable[[str], str]


def fields_of(name: str, value: str, reader: Optional[Reader]) -> Tuple[Mapping[str, object], str]:
    """(fields of the request, in words what it means here). ``reader``: text of a file that it names.

    Raises ValueError: it is refused.
    """
    text = _TEXTS.get(name)
    if text is not None:
        return {text: value}, ""
    flag = _FLAGS.get(name)
    if flag is not None:
        return dict(flag), ""
    made = _MEANINGS.get(name)
    if made is not None:
        return made(value), ""
    if name in ("nodelist", "exclude", "nodefile"):
        return {"exclude" if name == "exclude" else "nodelist": _hosts(name, value, reader)}, ""
    return {}, ""


def _hosts(name: str, value: str, reader: Optional[Reader]) -> Tuple[str, ...]:
    """A value with a slash is a file of them."""
    if name == "nodefile" or "/" in value:
        if reader is None:
            raise ValueError(f"the file {value} cannot be read here; write its nodes into --nodelist")
        try:
            return tuple(of_file(reader(value)))
        except OSError as error:
            raise ValueError(f"cannot read {value}: {error.strerror}") from None
    return tuple(expand(value))


def _array(value: str) -> Mapping[str, object]:
    """Brackets around it, or around a part of it, say nothing."""
    return {"array": re.sub(r"(?<![^,])\[|(?<=[0-9])\]", "", value)}


def _nodes(value: str) -> Mapping[str, object]:
    least, most = node_count(value)
    return {"nodes": least, "most_nodes": most, "nodes_said": True}


def _count(name: str, most: int) -> Callable[[str], Mapping[str, object]]:
    def made(value: str) -> Mapping[str, object]:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not 0 < int(value) <= most:
            raise ValueError(f"{value} is no number from 1 to {most}")
        return {name: int(value)}

    return made


def _time(name: str) -> Callable[[str], Mapping[str, object]]:
    def made(value: str) -> Mapping[str, object]:
        found = times.seconds(value)
        if found is None:
            raise ValueError(f"{value} is no time; write minutes, H:M:S or D-H:M:S")
        return {name: found}

    return made


def _features(value: str) -> Mapping[str, object]:
    if not re.fullmatch(r"[\w.&,:=/-]+", value) or "[" in value:
        raise ValueError("alternatives and counts of features cannot be promised; write a&b, all of which a node has")
    return {"features": tuple(filter(None, re.split("[&,]", value)))}


def _nice(value: str) -> Mapping[str, object]:
    if value and not re.fullmatch(r"-?[0-9]{1,9}", value):
        raise ValueError(f"{value} is no number")
    nice = int(value) if value else 100
    if nice < 0:
        raise ValueError("priority cannot be taken, only given up; --qos names a PriorityClass")
    return {"nice": nice}


def _kill(value: str) -> Mapping[str, object]:
    if value.lower() not in ("yes", "no"):
        raise ValueError(f"{value} is neither yes nor no")
    return {"kill_on_invalid_dependency": value.lower() == "yes"}


def _no_kill(value: str) -> Mapping[str, object]:
    return {"survives_node_loss": value.lower() not in ("off", "no")}


def _open_mode(value: str) -> Mapping[str, object]:
    if value[:1].lower() not in ("a", "t"):
        raise ValueError(f"{value} is neither append nor truncate")
    return {"append": value[0].lower() == "a"}


def _switches(value: str) -> Mapping[str, object]:
    count, _, wait = value.partition("@")
    seconds = times.seconds(wait) if wait else None
    if not count.isdigit() or not int(count) or (wait and seconds is None):
        raise ValueError(f"{value} is no count of switches, e.g. 1 or 1@10:00")
    return {"switches": int(count), "switches_wait": seconds}


def _partitions(value: str) -> Mapping[str, object]:
    return {"partitions": tuple(filter(None, value.split(",")))}


def _memory(value: str) -> Mapping[str, object]:
    found = mebibytes(value)
    return {"memory": found or None}  # 0: all of it


_TEXTS: Mapping[str, str] = {
    "job-name": "job_name", "begin": "begin", "deadline": "deadline", "qos": "qos",
    "account": "account", "reservation": "reservation", "comment": "comment", "mail-user": "mail_user",
    "chdir": "chdir", "output": "output", "error": "error", "input": "input", "export": "export",
    "export-file": "export_file", "container-image": "image", "container-mounts": "mounts",
    "container-workdir": "image_workdir", "wrap": "wrap",
}  # fmt: skip
_FLAGS: Mapping[str, Mapping[str, object]] = {
    "hold": {"hold": True}, "requeue": {"requeue": True}, "no-requeue": {"requeue": False},
    "contiguous": {"contiguous": True}, "wait": {"wait": True}, "test-only": {"test_only": True},
    "parsable": {"parsable": True}, "quiet": {"quiet": True},
}  # fmt: skip
_MEANINGS: Mapping[str, Callable[[str], Mapping[str, object]]] = {
    "array": _array,
    "nodes": _nodes,
    "ntasks": _count("ntasks", 10_000_000),
    "ntasks-per-node": _count("ntasks_per_node", MOST_TASKS_OF_NODE),
    "ntasks-per-gpu": _count("ntasks_per_gpu", MOST_TASKS_OF_NODE),
    "ntasks-per-tres": _count("ntasks_per_gpu", MOST_TASKS_OF_NODE),
    "cpus-per-task": _count("cpus_per_task", 65_536),
    "segment": _count("segment", 65_536),
    "time": _time("time_limit"),
    "time-min": _time("time_min"),
    "partition": _partitions,
    "constraint": _features,
    "dependency": lambda value: {"dependency": dependencies(value)},
    "kill-on-invalid-dep": _kill,
    "nice": _nice,
    "signal": lambda value: {"notice": notice(value)},
    "no-kill": _no_kill,
    "switches": _switches,
    "open-mode": _open_mode,
    "mem": _memory,
    "mail-type": lambda value: {"mail_types": tuple(filter(None, value.upper().split(",")))},
}
