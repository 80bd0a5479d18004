"""The START record: in status as the API has it, on the wire as the worker gets it."""

from lockstep.api.checkpoint_status import SavedCheckpoint
from lockstep.api.run_status import StartMembers
from lockstep.api.run_status import StartRecord as StatusStart
from lockstep.core.model.snapshot import CollectiveStart


def to_status(record: CollectiveStart) -> StatusStart:
    """As status keeps it."""
    resume = None
    if record.resume_tier:
        resume = SavedCheckpoint(tier=record.resume_tier, step=record.resume_step, path=record.resume_path)
    return StatusStart(
        attempt=record.attempt,
        assignment_hash=record.assignment_hash,
        master_address=record.master_address,
        master_port=record.master_port,
        resume=resume,
        members=tuple(StartMembers(slots=s, incarnation=i) for s, i in record.members),
        order=record.order,
    )


def to_record(start: StatusStart) -> CollectiveStart:
    """As every release repeats it."""
    resume = start.resume
    return CollectiveStart(
        attempt=start.attempt,
        assignment_hash=start.assignment_hash,
        master_address=start.master_address,
        master_port=start.master_port,
        resume_tier=resume.tier if resume else "",
        resume_step=resume.step if resume else 0,
        resume_path=resume.path if resume else "",
        members=tuple((m.slots, m.incarnation) for m in start.members),
        order=start.order,
    )
