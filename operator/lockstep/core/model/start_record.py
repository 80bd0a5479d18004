"""The START record: as the worker gets it and says it back, and in status as the API has it.

``status.start`` is changed here and nowhere else.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from lockstep.api.base.changes import changed
from lockstep.api.run_status import StartMembers, StartRecord, TrainingRunStatus
from lockstep.core.model.bounds import Count, Name, Path, Port, Step, Text, Word
from lockstep.core.model.totals_record import count_attempt


class Resume(Struct, frozen=True):
    """A checkpoint to resume from."""

    tier: Word
    step: Step
    path: Path


class Members(Struct, frozen=True):
    """Slots that start at the same incarnation."""

    slots: Text  # ranges such as "0-2,5"
    incarnation: Count


class CollectiveStart(Struct, frozen=True, rename="camel"):
    """The write-ahead record of one collective start (see status.start)."""

    attempt: Count
    assignment_hash: Word
    master_address: Name
    master_port: Port
    resume: Resume | None = None  # None: fresh
    members: Annotated[tuple[Members, ...], Meta(max_length=4096)] = ()
    order: Text = ""  # slots in rank order such as "0-1,4,3"; empty: the slot of its number
    dashboard: Word = ""  # host and port of Ray's; empty: there is none
    joins: Count = 0  # how often members and order were written anew, as nodes joined

    @property
    def resume_step(self) -> int:
        """The step it resumes from; 0: none."""
        return self.resume.step if self.resume is not None else 0


def to_status(record: CollectiveStart) -> StartRecord:
    """As status keeps it."""
    return StartRecord.load(msgspec.to_builtins(record))


def to_record(start: StartRecord) -> CollectiveStart:
    """As every release repeats it."""
    resume = start.resume
    return CollectiveStart(
        attempt=start.attempt,
        assignment_hash=start.assignment_hash,
        master_address=start.master_address,
        master_port=start.master_port,
        resume=Resume(resume.tier, resume.step, resume.path) if resume is not None else None,
        members=tuple(Members(member.slots, member.incarnation) for member in start.members),
        order=start.order,
        dashboard=start.dashboard,
        joins=start.joins,
    )


def put_start(status: TrainingRunStatus, start: StartRecord) -> TrainingRunStatus:
    """One more attempt starts."""
    return count_attempt(changed(status, start=start))


def renew_start(
    status: TrainingRunStatus, assignment_hash: str, members: tuple[StartMembers, ...], order: str, now: float
) -> TrainingRunStatus:
    """Others have joined the attempt that goes on."""
    start = status.start
    assert start is not None
    joins = start.joins + 1
    joined = changed(start, assignment_hash=assignment_hash, members=members, order=order, joins=joins, joined_at=now)
    return changed(status, start=joined)


def restore_start(status: TrainingRunStatus, told: CollectiveStart) -> TrainingRunStatus:
    """It was lost, and is as a worker tells it."""
    return changed(status, start=to_status(told))


def forget_start(status: TrainingRunStatus) -> TrainingRunStatus:
    """No attempt has started."""
    return changed(status, start=None)
