"""What one step of ``decide`` hands on to later ones: what it found that is not in status."""

from dataclasses import dataclass

from lockstep.api.checkpoint_status import ArchivedCheckpoint
from lockstep.core.model.plan import PointRequest, VerifyRequest, WarmUpRequest


@dataclass(frozen=True, slots=True)
class Gathering:
    """What a gang on its way to START is asked to do, and what it waits for once everybody is at the barrier."""

    verify: VerifyRequest | None = None
    look_again: tuple[int, ...] = ()  # ranks
    point: PointRequest | None = None
    warm_up: WarmUpRequest | None = None
    restore: ArchivedCheckpoint | None = None  # the copy that the resume choice waits for
    search_archive: bool = False  # the choice found nothing: the archive may hold what status forgot
    waiting_for: str = ""  # in words; empty: for somebody to arrive, or for nothing


@dataclass(frozen=True, slots=True)
class Handover:
    """Passed from step to step. ``is_last``: the step that said so has the last word."""

    leaving: frozenset[int] = frozenset()  # slots told to leave, which the gang's save is waited for with
    stacks: str = ""  # names the request for the stacks of all ranks
    slow: str = ""  # in words, what is late together, for which nobody is replaced
    gathering: Gathering = Gathering()
    is_last: bool = False
