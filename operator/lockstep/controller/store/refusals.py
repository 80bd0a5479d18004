"""Admissions that the API server would not take: each such run is left alone for a while, and longer every time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.controller.runtime.clock import Clock
from lockstep.core.model.plan import StatusWrite
from lockstep.core.model.snapshot import RefusedAdmission, RunView

_PAUSE, _LONGEST_PAUSE = 5.0, 300.0  # seconds


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
