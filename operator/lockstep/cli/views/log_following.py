"""`lockstep logs -f`: what ranks write, over pods, attempts and lost connections, until the run has ended."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator

from lockstep.cli import runs
from lockstep.cli.actions import wait
from lockstep.cli.client import Cluster, Json
from lockstep.cli.errors import ApiServerError, CliError, Unreachable, may_pass
from lockstep.cli.output import note
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import state_of

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[-+]\d\d:\d\d)) ")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds until a log that has ended is asked for again, unless the run changes before."""

PODS_ARE_GONE = "the run has ended, and its pods are gone"

ReadLog = Callable[[str, str], Iterator[bytes]]
"""Of a pod's name and the moment after which lines are wanted (empty: of all): lines, each with a timestamp."""


class Followed:
    """The run as it is now, kept up to date by a thread, for those that follow its ranks."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.changed = threading.Condition()
        self.over = False
        """Nobody is to wait any longer."""
        self.failure: BaseException | None = None
        self.absent: set[int] = set()
        """Ranks of which nothing could be read to the end, as their pods are gone."""
        self._told: set[str] = set()

    def keep(self, cluster: Cluster, raw: Json) -> None:
        """Follow the run ``raw`` to its end, in a thread."""
        try:
            for run in wait.versions(cluster, raw, None):
                whole = self._whole(cluster, run)
                with self.changed:
                    self.run = whole
                    self.changed.notify_all()
                self._tell_state(whole)
                if has_ended(whole):
                    return
        except BaseException as error:
            self.end(error)

    def _whole(self, cluster: Cluster, run: RunView) -> RunView:
        """With the assignment that lies beside it, which is asked for until the API server answers."""
        pause = _SHORTEST_PAUSE
        while True:
            try:
                return runs.whole(cluster, run)
            except CliError as error:
                if self.over or not may_pass(error):
                    raise
                self.tell(f"{error}; asking again until it answers.")
            with self.changed:
                self.changed.wait_for(lambda: self.over, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def end(self, failure: BaseException | None = None) -> None:
        """Have everybody stop, for this reason."""
        with self.changed:
            self.over, self.failure = True, self.failure or failure
            self.changed.notify_all()

    def pause(self, seen: RunView, seconds: float) -> None:
        """Until the run is another than the one ``seen``, or for so long."""
        with self.changed:
            self.changed.wait_for(lambda: self.over or self.run is not seen, seconds)

    def tell(self, words: str) -> None:
        """Say something once."""
        with self.changed:
            if words in self._told:
                return
            self._told.add(words)
        note(words)

    def _tell_state(self, run: RunView) -> None:
        if has_ended(run) or slots.is_held(run.status.assignment):
            return
        state, reason = state_of(run)
        self.tell(
            f"{run.name} is {state}{f' ({reason})' if reason else ''} and has no nodes; its log goes on when it has "
            f"(lockstep explain {run.name})."
        )


def has_ended(run: RunView) -> bool:
    """Nothing more will be written."""
    return is_true(run.status, ConditionType.FINISHED)


class RankLog:
    """What one rank writes. Lines come once, whatever pods and connections they come by."""

    def __init__(
        self,
        followed: Followed,
        rank: int,
        pod_of: Callable[[RunView, int], str],
        read: ReadLog,
        *,
        is_tail: bool = False,
    ) -> None:
        """``is_tail``: the first read leaves out what was written before, perhaps at the same moment."""
        self._followed, self._rank, self._pod_of, self._read = followed, rank, pod_of, read
        self._is_tail = is_tail
        self._stamp, self._of_stamp = b"", 0.0
        self._unstamped = 0
        self._was_read = self._is_gone = False

    def lines(self, *, stamped: bool) -> Iterator[bytes]:
        """Until the run has ended and its last pod is read. Raises CliError on a log that may not be read."""
        pod, pause = "", _SHORTEST_PAUSE
        while not self._followed.over:
            # Looked at before reading, so that what is written last is still read.
            run = self._followed.run
            current, ended = self._pod_of(run, self._rank), has_ended(run)
            if not pod:
                pod = current
            last = ended or pod != current
            found = False
            for line in self._new_lines(pod, last=last) if pod else ():
                found = True
                yield line if stamped else _STAMP.sub(b"", line, 1)
            if pod != current:
                pod, self._stamp, self._of_stamp, self._unstamped = current, b"", 0.0, 0
            elif ended:
                if self._is_gone:
                    self._followed.absent.add(self._rank)
                return
            else:
                pause = _SHORTEST_PAUSE if found else min(2 * pause, _LONGEST_PAUSE)
                self._followed.pause(run, pause)

    def _new_lines(self, pod: str, *, last: bool) -> Iterator[bytes]:
        passed, shown_to, again = 0, self._stamp, self._of_stamp
        try:
            for line in self._read(pod, self._stamp.decode()):
                stamp = _STAMP.match(line)
                if stamp is None:  # not every kubelet stamps them; such a log comes whole each time
                    passed += 1
                    if passed <= self._unstamped:
                        continue
                    self._unstamped = passed
                elif stamp[1] < shown_to:
                    continue
                elif stamp[1] == shown_to and again > 0:
                    again -= 1
                    continue
                else:
                    self._note(stamp[1])
                self._was_read = True
                yield line
            self._was_read = True
        except Unreachable as error:
            self._followed.tell(f"{error}; asking again until it answers.")
        except ApiServerError as error:
            if error.status not in (400, 404) and not may_pass(error):  # not started, gone; its node does not answer
                raise
            self._is_gone = not self._was_read and error.status in (400, 404)
            if not last:
                name = self._followed.run.name
                self._followed.tell(
                    f"not every container of {name} has started yet; its log follows (lockstep explain {name})."
                )

    def _note(self, stamp: bytes) -> None:
        """One more line is shown. Of those that are read in one piece some runtimes stamp all alike (CRI-O)."""
        if stamp == self._stamp:
            self._of_stamp += 1
        elif stamp > self._stamp:
            self._of_stamp = math.inf if self._is_tail and not self._stamp else 1
            self._stamp = stamp


def follow(
    cluster: Cluster,
    raw: Json,
    run: RunView,
    ranks_of: Callable[[RunView], list[int]],
    show_rank: Callable[[Followed, int], None],
) -> None:
    """Show the ranks of a run, those that it gets later too, until it has ended. ``show_rank`` is called in threads.

    Raises what first went wrong in one of them.
    """
    followed = Followed(run)
    begun, done = set[int](), set[int]()

    def show(rank: int) -> None:
        failure = None
        try:
            show_rank(followed, rank)
        except BaseException as error:
            failure = error
        with followed.changed:
            done.add(rank)
            followed.changed.notify_all()
        if failure is not None:
            followed.end(failure)

    # Daemons: an interrupt must not wait for streams that are silent.
    threading.Thread(target=followed.keep, args=(cluster, raw), daemon=True).start()
    while not followed.over:
        seen = followed.run
        for rank in ranks_of(seen) if seen.status.assignment.incarnations else ():
            if rank not in begun:
                begun.add(rank)
                threading.Thread(target=show, args=(rank,), daemon=True).start()

        def is_over(seen: RunView = seen) -> bool:
            # Ranks that are done before the run were wanted for one attempt alone.
            return begun == done and (bool(begun) or has_ended(seen))

        with followed.changed:
            followed.changed.wait_for(lambda seen=seen: followed.over or followed.run is not seen or is_over(seen))  # type: ignore[misc]
        if is_over():
            break
    if followed.failure is not None:
        raise followed.failure
    if not begun:
        raise CliError(f"{run.name} has ended without having had nodes, so nothing has logged")
    if followed.absent:
        raise no_log(followed.run, followed.absent, PODS_ARE_GONE)


def no_log(run: RunView, ranks: Iterable[int], why: str) -> CliError:
    """Nothing could be read of these ranks, and why."""
    gone = sorted(ranks)
    who = "rank" if len(gone) == 1 else "ranks"
    verb = "has" if len(gone) == 1 else "have"
    how = "it ended" if has_ended(run) else f"far it has come; lockstep logs -f {run.name} waits"
    return CliError(
        f"{who} {format_ranges(gone)} {verb} no log to read{f': {why}' if why else ''}",
        f"lockstep explain {run.name} says how {how}",
    )
