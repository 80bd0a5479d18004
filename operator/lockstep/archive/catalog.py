"""What the archive holds of one run, and what of it may go."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.archive.outcomes import ARCHIVE_CORRUPT, ArchiveError
from lockstep.archive.record import MAX_RECORD_BYTES, RECORD_NAME, ArchiveKey, RecordError, decode
from lockstep.archive.store import ObjectStore, StoredObject
from lockstep.core.checkpoints.retention import RetentionPolicy, StoredCheckpoint, to_prune
from lockstep.core.model.quarantine import Save
from lockstep.core.model.worker_report import Verdict

ABANDONED_AFTER = 7 * 86_400.0
"""Seconds after which parts that no record names are left over from an upload that will not go on."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One checkpoint in the archive.

    `time` is when it was published, else when its newest object was made, in Unix seconds on the store's clock.
    `unnamed` are objects that no record names: of an upload under way, given up, or of other contents.
    """

    place: ArchiveKey
    verdict: Verdict
    reason: str = ""
    bytes: int = 0
    world: int = 0
    format: str = ""
    time: float = 0.0
    unnamed: tuple[StoredObject, ...] = ()

    @property
    def stored(self) -> StoredCheckpoint:
        """As retention looks at it."""
        place = self.place
        return StoredCheckpoint(place.step, place.attempt, place.run_uid, place.label, self.verdict, self.time)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Checkpoints that went, or would go, and what is left; `leftovers` are objects of uploads that were given up."""

    checkpoints: tuple[ArchiveKey, ...]
    leftovers: int
    left: tuple[ArchiveEntry, ...]


def entries(store: ObjectStore, run_uid: str) -> tuple[ArchiveEntry, ...]:
    """All checkpoints of the run, newest first. VALID: published, with every part in its full size."""
    found = []
    for attempt in store.children(run_uid):
        for step in store.children(f"{run_uid}/{attempt}"):
            try:
                place = ArchiveKey.parse(run_uid, f"{attempt}/{step}")
            except RecordError:
                continue  # not ours to judge
            found.append(_entry(store, place))
    return tuple(sorted(found, key=lambda entry: (entry.place.attempt, entry.place.step), reverse=True))


def prune(
    store: ObjectStore,
    run_uid: str,
    policy: RetentionPolicy | None,
    *,
    now: float,
    pinned: frozenset[str] = frozenset(),
    quarantined: frozenset[Save] = frozenset(),
    dry_run: bool = False,
) -> Pruned:
    """Remove what the policy lets go, and what uploads that were given up have left.

    The record goes first: half removed, a checkpoint is not published, rather than damaged.
    """
    held = entries(store, run_uid)
    gone = to_prune(
        (entry.stored for entry in held), policy, run_uid=run_uid, now=now, pinned=pinned, quarantined=quarantined
    )
    places = tuple(ArchiveKey.parse(run_uid, each.path) for each in gone)
    leftovers = [
        left.name
        for entry in held
        if max((left.modified for left in entry.unnamed), default=now) <= now - ABANDONED_AFTER
        for left in entry.unnamed
    ]
    if not dry_run:
        for place in places:
            store.delete([place.record])
            store.delete([found.name for found in store.objects(place.prefix)])
        store.delete(leftovers)
    return Pruned(places, len(leftovers), tuple(entry for entry in held if entry.place not in places))


def _entry(store: ObjectStore, place: ArchiveKey) -> ArchiveEntry:
    objects = {found.name: found for found in store.objects(place.prefix)}
    newest = max((found.modified for found in objects.values()), default=0.0)
    published = objects.pop(place.record, None)
    if published is None:
        reason = f"no {RECORD_NAME}: never published"
        return ArchiveEntry(place, Verdict.INVALID, reason, time=newest, unnamed=tuple(objects.values()))
    try:
        record = decode(store.get(place.record, MAX_RECORD_BYTES) or b"", place)
    except (RecordError, ArchiveError) as error:
        if isinstance(error, ArchiveError) and error.reason is not ARCHIVE_CORRUPT:
            raise
        return ArchiveEntry(place, Verdict.INVALID, str(error), time=published.modified)
    for name, size in record.part_sizes():
        part = objects.pop(name, None)
        if part is None or part.bytes != size:
            state = "is missing" if part is None else f"has {part.bytes} bytes, not {size}"
            return ArchiveEntry(place, Verdict.INVALID, f"{name} {state}", record.size, time=published.modified)
    left = tuple(objects.values())
    return ArchiveEntry(place, Verdict.VALID, "", record.size, record.world, record.format, published.modified, left)
