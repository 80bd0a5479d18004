"""What the API server would not take: admissions, each of whose runs is left alone for a while, and longer every time;
and what is made for runs, of which it is to be told why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.plan import StatusWrite
from lockstep.core.model.snapshot import TOLD_AFTER, RefusedAdmission, RefusedCreate, RunView

_PAUSE, _LONGEST_PAUSE = 5.0, 300.0  # seconds
_UNJUDGED_AGAIN = 120.0
"""Seconds without any after which it is news that the API server does not judge something."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    generation: int
    of_status: bool
    pause: float
    refused: RefusedAdmission


class Refusals:
    """By UID of the run, whose next generation is judged anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: dict[str, _Refusal] = {}

    def note(self, run: RunView, words: str, *, of_status: bool) -> None:
        """The API server has judged what was decided of ``run``. ``of_status``: it does not even take its status."""
        before = self._refusals.get(run.uid)
        known = before is not None and before.generation == run.generation
        pause = min(2 * before.pause, _LONGEST_PAUSE) if before is not None and known else _PAUSE
        refused = RefusedAdmission(words, self._clock.now() + pause)
        self._refusals[run.uid] = _Refusal(run.generation, of_status, pause, refused)

    def forget(self, run_uid: str) -> None:
        """It was taken."""
        self._refusals.pop(run_uid, None)

    def bars(self, write: StatusWrite) -> bool:
        """This write would only be refused again."""
        known = self._refusals.get(write.uid)
        if known is None or known.refused.until <= self._clock.now():
            return False
        return known.of_status or bool(write.nodes or write.config_maps)

    def current(self, run_by_uid: Callable[[str], RunView | None]) -> Mapping[str, RefusedAdmission]:
        """What cycles are to know of runs that are still as they were refused."""
        for uid, refusal in [*self._refusals.items()]:
            run = run_by_uid(uid)
            if run is None or run.generation != refusal.generation:
                del self._refusals[uid]
        return {uid: refusal.refused for uid, refusal in self._refusals.items()}


class RefusedCreates:
    """Why pods, and what else is made for a run, were not taken: by UID of the run, and by name."""

    def __init__(self) -> None:
        self._refused: dict[str, dict[str, RefusedCreate]] = {}
        self._unjudged_told: dict[str, float] = {}  # run UID -> when what lasts without a verdict was met last

    def for_run(self, run_uid: str) -> Mapping[str, RefusedCreate]:
        """By name."""
        return MappingProxyType(self._refused.get(run_uid, {}))

    def note(self, run_uid: str, name: str, refused: RefusedCreate) -> bool:
        """Keep why one was not taken; True when that is news.

        What is no verdict is news once a run, and only when it lasts: many pods meet with it at once, when the server
        is the least able to take events.
        """
        refusals, now = self._refused.setdefault(run_uid, {}), refused.since
        before = refusals.get(name)
        if before is not None and before.is_verdict and not refused.is_verdict:
            return False  # a verdict and its deadline stand, whatever comes between two of its kind
        if before is not None and before.is_verdict == refused.is_verdict:
            refused = replace(refused, since=before.since)
        refusals[name] = refused
        if refused.is_verdict:
            return before is None or before.message != refused.message
        if now - refused.since < TOLD_AFTER:
            return False
        told_before, self._unjudged_told[run_uid] = self._unjudged_told.get(run_uid, 0.0), now
        return now - told_before > _UNJUDGED_AGAIN

    def forget(self, run_uid: str, name: str) -> None:
        """It was taken."""
        self._refused.get(run_uid, {}).pop(name, None)

    def forget_run(self, run_uid: str) -> None:
        """It is gone."""
        self._refused.pop(run_uid, None)
        self._unjudged_told.pop(run_uid, None)
