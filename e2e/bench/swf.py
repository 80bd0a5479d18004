"""Jobs from a log in the Standard Workload Format, version 2.2, of the Parallel Workloads Archive.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html: a line is a job, of 18 numbers between blanks, -1 where a
value is not known. Lines that begin with ``;`` are comments; those at the head say what the cluster was like. Read are
   2  submit time, seconds
   4  run time, seconds
   5  allocated processors, where field 8 is not known
   8  requested processors
   9  requested time, seconds by the clock: the limit; where it is not known or is shorter, the run time
  11  status: 2, 3 and 4 are parts of a job that has a line of its own, and are left out
  ``; MaxNodes:`` and ``; MaxProcs:``, for the size of the cluster
Jobs that never ran, or took no processor, are left out and counted. Files may be compressed (``.gz``).
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, isfinite
from pathlib import Path

from bench.traces import Arrival, any_level

_FIELDS = 18
_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _STATUS = 2, 4, 5, 8, 9, 11
_NAMES = {
    _SUBMIT: "submit time",
    _RUN: "run time",
    _ALLOCATED: "allocated processors",
    _REQUESTED: "requested processors",
    _LIMIT: "requested time",
    _STATUS: "status",
}
_PARTS = (2, 3, 4)


class LogError(ValueError):
    """A log that cannot be replayed. The message names the line, where there is one, and what to do."""


@dataclass(frozen=True)
class Log:
    """The jobs in the order in which they came, the first at 0 s, on a cluster of ``nodes``.

    ``left_out``: lines of jobs that never ran; ``unlimited``: jobs whose limit is their runtime, as none is known.
    """

    arrivals: tuple[Arrival, ...]
    nodes: int
    left_out: int
    unlimited: int


def opened(path: Path) -> list[str]:
    """The lines of a log."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read().decode("utf-8", errors="replace").split("\n")
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{path} cannot be read ({error}): name a log in the Standard Workload Format") from error


def parsed(
    lines: Iterable[str], *, nodes: int | None = None, per_node: int = 1, most: int | None = None, seed: int = 1
) -> Log:
    """The first ``most`` jobs of a log, or all. ``per_node``: processors of a node, of which a job gets whole ones.

    ``nodes`` None: as many as the head of the log says. Classes are drawn by ``seed``, as the format has none.
    """
    chance = random.Random(seed)
    head: dict[str, int] = {}
    jobs: list[tuple[int, Arrival]] = []
    unlimited: set[int] = set()
    left_out = 0
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(";"):
            _note(head, line, number)
            continue
        if not line.strip():
            continue
        values = _values(line, number)
        if values[_STATUS] in _PARTS:
            continue
        taken = values[_REQUESTED] if values[_REQUESTED] > 0 else values[_ALLOCATED]
        if values[_RUN] <= 0 or taken <= 0:
            left_out += 1
            continue
        if values[_SUBMIT] < 0:
            raise LogError(f"line {number}, field {_SUBMIT} (submit time): a job that ran was submitted, write when")
        if values[_LIMIT] <= 0:
            unlimited.add(number)
        limit = max(values[_RUN], values[_LIMIT])
        size = ceil(taken / per_node)
        jobs.append((number, Arrival(values[_SUBMIT], size, values[_RUN], limit, any_level(chance))))
    if not jobs:
        raise LogError("no line is a job that ran: name a log in the Standard Workload Format")
    jobs.sort(key=lambda job: job[1].at)
    jobs = jobs[:most]
    nodes = _nodes(head, per_node) if nodes is None else nodes
    for number, job in jobs:
        if job.nodes > nodes:
            raise LogError(
                f"line {number}: the job takes {job.nodes} nodes, and the cluster has {nodes}: "
                f"give --nodes {job.nodes} or more, or more --processors-per-node than {per_node}"
            )
    first = jobs[0][1].at
    return Log(
        tuple(replace(job, at=job.at - first) for _, job in jobs),
        nodes,
        left_out,
        sum(number in unlimited for number, _ in jobs),
    )


def _values(line: str, number: int) -> dict[int, float]:
    fields = line.split()
    if len(fields) != _FIELDS:
        raise LogError(
            f"line {number} has {len(fields)} fields, a job has {_FIELDS}: "
            "write -1 for what is not known, and ; before a comment"
        )
    values = {}
    for field, name in _NAMES.items():
        try:
            values[field] = float(fields[field - 1])
        except ValueError:
            values[field] = float("nan")
        if not isfinite(values[field]):
            raise LogError(
                f"line {number}, field {field} ({name}): {fields[field - 1]!r} is no number: "
                "write one, or -1 where it is not known"
            )
    return values


def _note(head: dict[str, int], line: str, number: int) -> None:
    name, _, value = line.lstrip(" ;\t").partition(":")
    if name.strip() not in ("MaxNodes", "MaxProcs"):
        return
    words = value.split()
    if not words or not words[0].isdecimal():
        raise LogError(f"line {number}: {name.strip()} is no number: write one, or remove the line and give --nodes")
    head[name.strip()] = int(words[0])


def _nodes(head: dict[str, int], per_node: int) -> int:
    """Without ``MaxProcs`` a node of the log is taken for a processor: the format has them alike on such clusters."""
    processors = head.get("MaxProcs", 0) or head.get("MaxNodes", 0)
    if processors <= 0:
        raise LogError("no line '; MaxProcs: N' or '; MaxNodes: N' says how large the cluster was: give --nodes")
    return ceil(processors / per_node)
