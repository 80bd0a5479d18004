"""`lockstep logs`: what ranks wrote, from the pods that run them now or ran them last."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.api.base import names
from lockstep.cli import runs
from lockstep.cli.client import Cluster, Query, core_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.output import note, raise_failures
from lockstep.core.model import assignment as slots
from lockstep.core.model.ranges import format_ranges, parse_ranges
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.launchers import others_stand_by

MOST_RANKS = 32
"""Streams that are opened without being asked for by name."""

_MARKER = re.compile(rb"^lockstep: attempt=(\d+) .*\bstart\s*$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines of a pod's log."""

    attempt: int | None = None  # None: of all attempts
    follow: bool = False
    tail: int | None = None
    timestamps: bool = False

    def query(self) -> dict[str, Query]:
        """Parameters of the log subresource. A tail of one attempt can only be cut here."""
        query: dict[str, Query] = {"container": names.CONTAINER_NAME, "follow": self.follow}
        if self.timestamps:
            query["timestamps"] = True
        if self.tail is not None and self.attempt is None:
            query["tailLines"] = self.tail
        return query


def show(cluster: Cluster, name: str, ranks: str, wanted: Wanted) -> None:
    """Print the log of one rank as it is, of several with the rank in front of every line."""
    run = runs.whole(cluster, runs.view(runs.fetch(cluster, name)))
    if not run.status.assignment.incarnations:
        raise CliError(f"{name} has had no nodes yet, so nothing has logged", f"lockstep explain {name}")
    chosen = chosen_ranks(run, ranks)
    if 0 not in chosen and run.spec is not None and others_stand_by(run.spec):
        note("the command is on rank 0, and so is the output of what it starts on other ranks: --rank 0.")
    lock = threading.Lock()
    failures: list[CliError] = []

    def show_rank(rank: int) -> None:
        prefix = b"" if len(chosen) == 1 else f"[rank {rank}] ".encode()
        try:
            for line in rank_lines(cluster, run, rank, wanted):
                with lock:
                    sys.stdout.buffer.write(prefix + line)
                    sys.stdout.buffer.flush()
        except CliError as error:
            failures.append(error)

    if wanted.follow and len(chosen) > 1:
        # Daemons: an interrupt must not wait for streams that are silent.
        threads = [threading.Thread(target=show_rank, args=(rank,), daemon=True) for rank in chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for rank in chosen:
            show_rank(rank)
    raise_failures(failures)


def chosen_ranks(run: RunView, ranks: str) -> list[int]:
    """The ranks that ``ranks`` ("" or ranges such as 0-3,7) names. Raises CliError on one that there is not."""
    world = _world(run)
    if not ranks:
        if world > MOST_RANKS:
            raise CliError(f"{run.name} has {world} ranks; name those to show", "e.g. --rank 0 or --rank 0-7")
        return list(range(world))
    try:
        chosen = sorted(parse_ranges(ranks))
    except ValueError as error:
        raise CliError(f"--rank {ranks} is no set of ranks", "write it as 0, 0-3 or 0-3,7") from error
    beyond = [rank for rank in chosen if rank >= world]
    if beyond:
        raise CliError(f"{run.name} has ranks 0-{world - 1}, not {format_ranges(beyond)}")
    return chosen


def pod_names(run: RunView, rank: int, wanted: Wanted) -> list[str]:
    """The pod of the rank's current incarnation; for one attempt those before it too, oldest first."""
    slot = slots.slot_of_rank(run.status.assignment, rank)
    current = run.status.assignment.incarnations[slot]
    # The last dead pod of a slot is kept for its logs, older ones are not.
    oldest = current if wanted.attempt is None else max(1, current - 1)
    return [names.pod_name(run.name, run.uid, slot, number) for number in range(oldest, current + 1)]


def rank_lines(cluster: Cluster, run: RunView, rank: int, wanted: Wanted) -> Iterator[bytes]:
    """Lines with their ends. Raises CliError when there is no pod to read, or nothing of the attempt in it."""
    found = False
    absent: ApiServerError | None = None
    for pod in pod_names(run, rank, wanted):
        path = core_path(run.namespace, "pods", pod) + "/log"
        try:
            lines = _lines(cluster.stream(path, read_timeout=None, **wanted.query()))
            for line in lines if wanted.attempt is None else _last(of_attempt(lines, wanted.attempt), wanted):
                found = True
                yield line
        except ApiServerError as error:
            if error.status not in (400, 404):  # 400: its container has not started
                raise
            absent = error
    if absent is not None and not found:
        raise CliError(
            f"rank {rank} has no log to read: {absent}", f"lockstep explain {run.name} says how far it has come"
        )
    if not found and wanted.attempt is None:
        note(f"rank {rank} has logged nothing.")
    elif not found:
        raise CliError(f"rank {rank} has logged nothing of attempt {wanted.attempt} in the pods that are kept")


def of_attempt(lines: Iterator[bytes], attempt: int) -> Iterator[bytes]:
    """The lines from the worker's start marker of ``attempt`` to that of the next one."""
    inside = False
    for line in lines:
        # With --timestamps the moment stands in front of the marker.
        marker = _MARKER.search(line) or _MARKER.search(line.partition(b" ")[2])
        if marker:
            inside = int(marker[1]) == attempt
        if inside:
            yield line


def _last(lines: Iterator[bytes], wanted: Wanted) -> Iterator[bytes] | Sequence[bytes]:
    if wanted.tail is None or wanted.follow:
        return lines
    kept = list(lines)
    return kept[len(kept) - wanted.tail :] if wanted.tail < len(kept) else kept


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    left = b""
    for chunk in chunks:
        *lines, left = (left + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if left:
        yield left + b"\n"


def _world(run: RunView) -> int:
    assignment = run.status.assignment
    return len(assignment.rank_to_slot or assignment.nodes) or run.status.resolved.nodes or len(assignment.incarnations)
