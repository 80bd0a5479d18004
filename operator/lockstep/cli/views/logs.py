"""`lockstep logs`: what ranks wrote, from the pods that run them now or ran them last."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lockstep.api.base import names
from lockstep.cli import runs
from lockstep.cli.client import Cluster, Query, core_path
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.output import note, raise_failures
from lockstep.cli.views.log_following import PODS_ARE_GONE, Followed, RankLog, follow, has_ended, no_log
from lockstep.core.model import assignment as slots
from lockstep.core.model.ranges import format_ranges, parse_ranges
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.launchers import others_stand_by

MOST_RANKS = 32
"""Streams that are opened without being asked for by name."""

_WAITS = re.compile(r"is waiting to start: (\w{1,64})")
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
    raw = runs.fetch(cluster, name)
    run = runs.whole(cluster, runs.view(raw))
    if wanted.attempt is not None and run.status.attempt > wanted.attempt:
        wanted = replace(wanted, follow=False)  # nothing is added to it
    if not run.status.assignment.incarnations and not wanted.follow:
        remedy = f"lockstep explain {name}; lockstep logs -f {name} waits for them"
        raise CliError(f"{name} has had no nodes yet, so nothing has logged", remedy)
    chosen = chosen_ranks(run, ranks)
    if 0 not in chosen and run.spec is not None and others_stand_by(run.spec):
        note("the command is on rank 0, and so is the output of what it starts on other ranks: --rank 0.")
    prefixed = len(chosen) > 1
    lock = threading.Lock()

    def print_lines(rank: int, lines: Iterable[bytes]) -> None:
        prefix = f"[rank {rank}] ".encode() if prefixed else b""
        for line in lines:
            with lock:
                sys.stdout.buffer.write(prefix + line)
                sys.stdout.buffer.flush()

    if not wanted.follow:
        _print_all(cluster, run, chosen, wanted, print_lines)
        return

    def follow_rank(followed: Followed, rank: int) -> None:
        read = partial(_stamped_log, cluster, run.namespace, wanted)
        is_tail = "tailLines" in wanted.query()
        log = RankLog(followed, rank, partial(_pod_to_follow, wanted), read, is_tail=is_tail)
        lines = log.lines(stamped=wanted.timestamps)
        print_lines(rank, lines if wanted.attempt is None else of_attempt(lines, wanted.attempt))

    def ranks_of(now: RunView) -> list[int]:
        return chosen_ranks(now, "") if not ranks else [rank for rank in chosen if rank < _world(now)]

    follow(cluster, raw, run, ranks_of, follow_rank)


def _print_all(
    cluster: Cluster,
    run: RunView,
    chosen: Sequence[int],
    wanted: Wanted,
    print_lines: Callable[[int, Iterable[bytes]], None],
) -> None:
    """Raises CliError with all that could not be read."""
    failures: list[CliError] = []
    absent: dict[int, str] = {}
    for rank in chosen:
        try:
            print_lines(rank, rank_lines(cluster, run, rank, wanted))
        except _NoLog as why:
            absent[rank] = str(why)
        except CliError as error:
            failures.append(error)
    if absent:
        words = sorted(set(filter(None, absent.values())))
        failures.append(no_log(run, absent, words[0] if words else ""))
    raise_failures(failures)


class _NoLog(Exception):  # noqa: N818 (a state of the rank)
    """Why a rank has no log, in words."""


def parsed(ranks: str) -> list[int]:
    """In ascending order; empty: all. Raises UsageError."""
    try:
        return sorted(parse_ranges(ranks)) if ranks else []
    except ValueError as error:
        raise UsageError(f"--rank {ranks} is no set of ranks", "write it as 0, 0-3 or 0-3,7") from error


def chosen_ranks(run: RunView, ranks: str) -> list[int]:
    """The ranks that ``ranks`` ("" or ranges such as 0-3,7) names. Raises CliError on one that there is not."""
    world, chosen = _world(run), parsed(ranks)
    if not chosen:
        if world > MOST_RANKS:
            raise CliError(f"{run.name} has {world} ranks; name those to show", "e.g. --rank 0 or --rank 0-7")
        return list(range(world))
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


def _pod_to_follow(wanted: Wanted, run: RunView, rank: int) -> str:
    """The pod to begin or to go on with; empty: there is none yet."""
    slot = slots.slot_of_rank(run.status.assignment, rank) if rank < _world(run) else -1
    if not 0 <= slot < len(run.status.assignment.incarnations):
        return ""
    return pod_names(run, rank, Wanted())[-1]


def _stamped_log(cluster: Cluster, namespace: str, wanted: Wanted, pod: str, since: str) -> Iterator[bytes]:
    query = replace(wanted, timestamps=True).query()
    if since:
        query.pop("tailLines", None)
        query["sinceTime"] = since
    return _lines(cluster.stream(f"{core_path(namespace, 'pods', pod)}/log", read_timeout=None, **query))


def rank_lines(cluster: Cluster, run: RunView, rank: int, wanted: Wanted) -> Iterator[bytes]:
    """Lines with their ends. Raises _NoLog when there is no pod to read, CliError when there is nothing of the attempt
    in it."""
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
        raise _NoLog(_why_absent(run, absent))
    if not found and wanted.attempt is None:
        note(f"rank {rank} has logged nothing.")
    elif not found:
        raise CliError(f"rank {rank} has logged nothing of attempt {wanted.attempt} in the pods that are kept")


def _why_absent(run: RunView, error: ApiServerError) -> str:
    if has_ended(run):
        return PODS_ARE_GONE
    waits = _WAITS.search(str(error))
    return f"the container has not started yet{f' ({waits[1]})' if waits else ''}"


def of_attempt(lines: Iterator[bytes], attempt: int) -> Iterator[bytes]:
    """The lines from the worker's start marker of ``attempt`` to that of the next one."""
    inside = False
    for line in lines:
        # With --timestamps the moment stands in front of the marker.
        marker = _MARKER.search(line) or _MARKER.search(line.partition(b" ")[2])
        if marker:
            inside = int(marker[1]) == attempt
            if int(marker[1]) > attempt:
                return
        if inside:
            yield line


def _last(lines: Iterator[bytes], wanted: Wanted) -> Iterable[bytes]:
    if wanted.tail is None:
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
    held = len(assignment.rank_to_slot or assignment.nodes) or run.status.resolved.nodes or len(assignment.incarnations)
    return held or (run.spec.nodes if run.spec is not None else 0)
