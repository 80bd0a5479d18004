"""What status says of checkpoints: those there are, how often they are saved, and what is done with them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lockstep.api.base.schema import MapList, StatusModel, Timestamp


class SavedCheckpoint(StatusModel):
    """A checkpoint: a step in a tier."""

    tier: str
    """local or shared."""
    step: int
    """The step it was saved at."""
    path: str = ""
    """Directory as the training container sees it."""
    attempt: int | None = None
    """The attempt that saved it."""
    time: Timestamp | None = None
    """When it was complete."""


class RejectedCandidate(StatusModel):
    """A newer checkpoint that was passed over."""

    tier: str
    """local or shared."""
    step: int
    """The step it claims."""
    path: str = ""
    """Directory as the training container sees it."""
    attempt: int | None = None
    """The attempt that saved it."""
    reason: str
    """Why it is not valid."""
    seconds: int | None = None
    """What resuming from it would have cost: to load it and to repeat the steps since."""


class UnrecognisedSave(StatusModel):
    """What may be a save, and is none that can be resumed from: no format knows it, or it was never committed."""

    tier: str
    """local or shared."""
    path: str
    """File or directory as the training container sees it."""
    attempt: int | None = None
    """The attempt that wrote it; absent: it lies outside the directory that an attempt is given."""
    reason: str = ""
    """What is lacking."""


class PreviousSave(StatusModel):
    """What an earlier run of the same name left in this run's path."""

    uid: str
    """UID of that run, which names its directory; empty where all save in one, in a format that does not say it."""
    step: int
    """The newest step that is valid there."""
    path: str
    """The checkpoint as the training container sees it."""


class QuarantinedCheckpoint(StatusModel):
    """A checkpoint that is not resumed from again, although it looks valid."""

    tier: str
    """local, shared or archive."""
    step: int
    """Its step."""
    attempt: int = 0
    """The attempt that saved it: what others save at that step is not meant; 0: whichever saved it."""
    reason: str
    """What happened soon after it was loaded."""
    time: Timestamp | None = None
    """Since when."""


class DivergedSaves(StatusModel):
    """What was saved after training had gone wrong. It is not resumed from, however valid it is."""

    step: int
    """From this step on, which is known to have gone wrong."""
    attempt: int
    """By this attempt and those before it."""


class CadenceStatus(StatusModel):
    """How often a checkpoint is asked for, and why that often."""

    interval: int = 0
    """Seconds between two saves to the fastest tier; 0: the program alone decides."""
    steps: int = 0
    """The same in steps; 0 while the time of a step is not known."""
    shared_steps: int = 0
    """Steps between two saves to the shared tier, a multiple of `steps`; 0 with a single tier."""
    archive_every: int = 0
    """So many saves to the shared tier come to one copy in the archive; 0: none is copied."""
    from_step: int = 0
    """The step from which this holds: one that no rank had begun when it was decided, so that all ranks agree.
    0: the ranks heard of it at their start."""
    mttf: int = 0
    """Seconds that a gang of this size is expected to run between two failures."""
    why: str = ""
    """What the interval rests on, in a sentence."""
    changed_at: Timestamp | None = None
    """When the interval last changed."""


MAX_SEEN_BEFORE = 32


class SaveStatus(StatusModel):
    """A collective save that was asked for."""

    id: str
    """Names it to the workers; the same for all ranks."""
    at_step: int = 0
    """Every rank saves at this step; 0: at the next opportunity."""
    attempt: int = 0
    """The attempt that is to save."""
    needs_step: int = 0
    """A valid checkpoint of this step or a later one is the answer."""
    reason: str = ""
    """What it is for: Suspended, Drained, Requested, …; several when one save serves them all."""
    time: Timestamp | None = None
    """When it was asked for."""
    deadline: Timestamp | None = None
    """When waiting for it ends."""
    outcome: str = ""
    """Saved, Expired or Failed; empty while it is awaited."""
    step: int = 0
    """The step that was saved."""
    seen_before: Annotated[tuple[str, ...], Field(max_length=MAX_SEEN_BEFORE)] = ()
    """Hashes of what lay there as it was asked for and does not say which attempt saved it: these are no answer."""


class PointingStatus(StatusModel):
    """The request to one rank to have the framework's own loader find the chosen step."""

    attempt: int
    """The attempt that is to resume from it."""
    path: str
    """The directory that holds it."""
    step: int
    """The chosen step."""
    slot: int
    """The slot whose worker is asked."""
    time: Timestamp
    """When it was asked."""
    asked: int = 1
    """How many ranks were asked, one after the other."""
    problem: str = ""
    """What the one before answered."""


class ArchivedCheckpoint(StatusModel):
    """A checkpoint that the archive holds."""

    step: int
    """The step it was saved at."""
    attempt: int = 0
    """The attempt that saved it."""
    bytes: int = 0
    """Its size; 0: not known."""
    world: int = 0
    """The nodes it was saved by; 0: not known."""
    format: str = ""
    """Its format, e.g. TorchDCP; empty: not known."""
    time: Timestamp | None = None
    """When it was published."""


class ArchiveJobStatus(StatusModel):
    """A job between the shared tier and the archive; in status before it is made."""

    name: str
    """Name of the Job."""
    action: str
    """Upload, Restore, List; Tidy or Prune: remove older checkpoints of the shared tier, or of the archive."""
    step: int = 0
    """Step of the checkpoint."""
    attempt: int = 0
    """The attempt that saved it."""
    path: str = ""
    """What is copied, or the directory that it is restored into, as the training container sees it."""
    time: Timestamp | None = None
    """When it was decided on."""
    idle: Timestamp | None = None
    """Since when no pod of it was seen to run while a gang waits for it; null while one runs."""
    stopped: Timestamp | None = None
    """When it was told to end, for what comes before it or because it was idle for too long."""


class ArchiveStatus(StatusModel):
    """The archive tier."""

    uri: str = ""
    """The archive that all of this is about."""
    endpoint: str | None = None
    """Its server, empty for the provider's own; null where that was not kept yet."""
    published: Annotated[tuple[ArchivedCheckpoint, ...], Field(max_length=8)] = ()
    """Checkpoints known to be published, newest first."""
    damaged: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Copies that came back as other bytes than were published, or whose name another checkpoint has in the shared
    tier, e.g. a2/step-300; they are not brought back again."""
    refused: str = ""
    """The last source that turned out not to be valid, e.g. a2/step-300; it is not tried again."""
    job: ArchiveJobStatus | None = None
    """The job at work."""
    restored: SavedCheckpoint | None = None
    """What was brought back last, where the ranks find it."""
    restored_for: int = 0
    """The attempt by then, whose nodes may have looked there before."""
    listed: Timestamp | None = None
    """When the archive itself was last asked what it holds."""
    tidied: Timestamp | None = None
    """When a job last looked for checkpoints of the shared tier that may go."""
    tidied_for: str = ""
    """The newest checkpoint at that time, e.g. a2/step-300; after a failure only once it is given up for that one."""
    tidy_failures: int = 0
    """Such jobs that failed in a row."""
    pruned: Timestamp | None = None
    """When a job last looked for copies in the archive that may go."""
    pruned_for: str = ""
    """The newest copy at that time, e.g. a2/step-300; after a failure only once it is given up for that one."""
    prune_failures: int = 0
    """Such jobs that failed in a row."""
    time: Timestamp | None = None
    """When the last copy was published."""
    copy_seconds: int = 0
    """How long it took, waiting for its pod included."""
    failures: int = 0
    """Uploads that failed in a row."""
    not_before: Timestamp | None = None
    """The next upload starts no earlier."""
    restore_failures: int = 0
    """Restores and listings, for which a gang waits, that failed in a row."""
    restore_not_before: Timestamp | None = None
    """The next of them starts no earlier."""
    fetched: int = 0
    """Restores and listings that succeeded, of earlier archives too: the job of the next one has another name."""
    message: str = ""
    """What went wrong last, and the remedy; empty after a success."""


class LocalSave(StatusModel):
    """A step that an attempt saved on its nodes' own disks."""

    step: int
    """The step."""
    attempt: int
    """The attempt that saved it."""


MAX_LOCAL_SAVES = 64


class LocalRetentionStatus(StatusModel):
    """What earlier attempts saved on the nodes' own disks, and what of it the workers of an attempt may remove.

    Written with START.
    """

    attempt: int
    """The attempt that started; nothing that it saves itself is meant."""
    floor: LocalSave | None = None
    """Whatever is older than this one may go, but for `kept`; none: only what `spent` names."""
    kept: Annotated[tuple[LocalSave, ...], Field(max_length=MAX_LOCAL_SAVES)] = ()
    """What stays in any case."""
    spent: Annotated[tuple[LocalSave, ...], Field(max_length=MAX_LOCAL_SAVES)] = ()
    """Newer ones that are of no use to anybody: torn, or in quarantine."""
    message: str = ""
    """Why nothing is removed, where that is so."""


class CheckpointStatus(StatusModel):
    """What could be resumed from now."""

    ceiling: int | None = None
    """Nothing newer than this step is resumed from, after a roll-back; until a newer one is saved."""
    quarantined: Annotated[tuple[QuarantinedCheckpoint, ...], Field(max_length=16)] = ()
    """Checkpoints that training failed on soon after it was loaded."""
    diverged: Annotated[tuple[DivergedSaves, ...], Field(max_length=16)] = ()
    """What went wrong before roll-backs that are over, the latest last."""
    cadence: CadenceStatus = CadenceStatus()
    """How often a checkpoint is asked for."""
    save: SaveStatus | None = None
    """The last collective save that was asked for."""
    archive: ArchiveStatus = ArchiveStatus()
    """The archive tier."""

    pointing: PointingStatus | None = None
    """How far the loader's pointers are, where `resumeBy` is Pointer."""
    resume: SavedCheckpoint | None = None
    """What the current attempt resumed from."""
    choice: str = ""
    """How the last resume point came to be chosen, in a sentence."""
    latest: Annotated[tuple[SavedCheckpoint, ...], MapList("tier"), Field(max_length=4)] = ()
    """Newest valid checkpoint of each tier."""
    unrecognised: Annotated[tuple[UnrecognisedSave, ...], Field(max_length=4)] = ()
    """What the program wrote and no format recognises, while nothing valid was ever saved."""
    previous_saves: Annotated[tuple[PreviousSave, ...], Field(max_length=4)] = ()
    """What runs of the same name before it left in its path, newest first; only where the run was stopped for it."""
    rejected: Annotated[tuple[RejectedCandidate, ...], Field(max_length=10)] = ()
    """Newer ones that were passed over, newest first."""
    local_retention: LocalRetentionStatus | None = None
    """What earlier attempts have left on the nodes' own disks, and what of it may go."""
