"""Which node and which incarnation every slot has. Pods are a function of this and of nothing else.

A slot is a pod identity, a rank a position in the collective; ``rank_to_slot`` joins them and is the
identity unless said. A slot without a rank is a spare. Incarnations never decrease for one run UID, also not
across requeues. ``status.assignment`` is changed here and nowhere else.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from lockstep.api.base import nesting
from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, StartMembers, TrainingRunStatus
from lockstep.core.model.plan import EnsureConfigMap
from lockstep.core.model.plural import plural
from lockstep.core.model.ranges import format_order, format_ranges
from lockstep.core.model.spilled_config_map import immutable_config_map

ASSIGNMENT_KEY = "assignment.json"
INLINE_LIMIT = 16 * 1024
"""Bytes of node names and incarnations that status itself may hold."""
MOST_VACANT = 256
"""Vacant slots that stay in status beside a ConfigMap: a gang of two may be asked to grow to thousands."""


def put(status: TrainingRunStatus, assignment: AssignmentStatus) -> TrainingRunStatus:
    """The run is on these nodes."""
    return changed(status, assignment=assignment)


def damage(assignment: AssignmentStatus) -> str:
    """Why this was not written by an operator, in words; empty when it makes sense. Status is a person's to edit."""
    nodes, named = assignment.nodes, [node for node in assignment.nodes if node]
    every = set(range(len(nodes)))
    if not nodes:
        has_slots = bool(assignment.vacant or assignment.rank_to_slot)
        emptied = has_slots or (bool(assignment.hash) and assignment.hash != _hash(assignment))
        return "status.assignment has lost its nodes" if emptied and not assignment.config_map else ""
    if len(assignment.incarnations) < len(nodes):
        incarnations = plural(len(assignment.incarnations), "incarnation")
        return f"status.assignment has {plural(len(nodes), 'node')} and {incarnations}"
    if len(set(named)) < len(named):
        return "status.assignment.nodes names a node twice"
    for field, listed in (("vacant", assignment.vacant), ("rankToSlot", assignment.rank_to_slot)):
        if len(set(listed)) < len(listed) or not every.issuperset(listed):
            return f"status.assignment.{field} names a slot twice, or one that is not there"
    if any(nodes[slot] for slot in assignment.vacant):
        return "status.assignment.vacant names a slot that has a node"
    return ""


def illegible(assignment: AssignmentStatus) -> AssignmentStatus:
    """What is left of a damaged one: no nodes, and the incarnations that must not be used again."""
    return AssignmentStatus(revision=assignment.revision, incarnations=assignment.incarnations)


def lost(assignment: AssignmentStatus) -> AssignmentStatus:
    """One whose ConfigMap is gone or holds something else: damaged, until it is rebuilt."""
    return AssignmentStatus(revision=assignment.revision, hash=assignment.hash)


def bookable(assignment: AssignmentStatus) -> AssignmentStatus:
    """What admission may rest on: a gang whose assignment is damaged keeps its nodes, and gets no others."""
    if not damage(assignment):
        return assignment
    return changed(assignment, vacant=(), rank_to_slot=())


def is_held(assignment: AssignmentStatus) -> bool:
    """The gang has been admitted and not yet given its nodes back (some may be vacant)."""
    return bool(assignment.nodes or assignment.config_map)


def assigned(
    previous: AssignmentStatus, nodes: Sequence[str], *, spares: int = 0, rank_to_slot: Sequence[int] = ()
) -> AssignmentStatus:
    """A new gang on ``nodes`` (by slot). Every slot starts at an incarnation not used before.

    ``spares``: so many further slots, without ranks, whose nodes are yet to be found. ``rank_to_slot``: who is who,
    when that is known already; otherwise every rank sits in the slot of its number.
    """
    seen, count = previous.incarnations, len(nodes) + spares
    incarnations = tuple((seen[slot] if slot < len(seen) else 0) + 1 for slot in range(count))
    ranks = tuple(rank_to_slot) or tuple(range(len(nodes)))
    # Slots that a smaller gang leaves behind keep their count for the day the run grows again.
    return _revised(
        changed(
            previous,
            nodes=(*nodes, *[""] * spares),
            incarnations=incarnations + seen[count:],
            vacant=tuple(range(len(nodes), count)),
            vacant_since=None,
            rank_to_slot=() if ranks == tuple(range(count)) else ranks,
        )
    )


def counted(assignment: AssignmentStatus, incarnations: Iterable[int]) -> AssignmentStatus:
    """Other incarnations were seen than it knows of. No pod is made of this: ``assigned`` or ``released`` follows."""
    return changed(assignment, incarnations=tuple(incarnations))


def missed(assignment: AssignmentStatus, now: float) -> AssignmentStatus:
    """Its vacant slots are waited for from now on."""
    return changed(assignment, vacant_since=now)


def released(assignment: AssignmentStatus) -> AssignmentStatus:
    """All nodes given back; incarnations stay, so that they never repeat."""
    return _revised(changed(assignment, nodes=(), vacant=(), vacant_since=None, rank_to_slot=()))


def advanced(assignment: AssignmentStatus, slots: Iterable[int]) -> AssignmentStatus:
    """The next incarnation of ``slots`` on the nodes they have."""
    raised = set(slots)
    return _revised(
        changed(
            assignment,
            incarnations=tuple(n + (slot in raised) for slot, n in enumerate(assignment.incarnations)),
        )
    )


def vacated(assignment: AssignmentStatus, slots: Iterable[int], now: float) -> AssignmentStatus:
    """The next incarnation of ``slots``, on nodes yet to be found."""
    empty = set(slots)
    return _since(
        _revised(
            changed(
                assignment,
                nodes=tuple("" if slot in empty else node for slot, node in enumerate(assignment.nodes)),
                incarnations=tuple(n + (slot in empty) for slot, n in enumerate(assignment.incarnations)),
                vacant=tuple(sorted(empty | set(assignment.vacant))),
            )
        ),
        now,
    )


def filled(assignment: AssignmentStatus, found: Mapping[int, str]) -> AssignmentStatus:
    """Vacant slots of ``found`` get their node; ranks and incarnations stay."""
    return _since(
        _revised(
            changed(
                assignment,
                nodes=tuple(found.get(slot, node) for slot, node in enumerate(assignment.nodes)),
                vacant=tuple(slot for slot in assignment.vacant if slot not in found),
            )
        ),
        assignment.vacant_since,
    )


def reseated(assignment: AssignmentStatus, moved: Mapping[int, int]) -> AssignmentStatus:
    """The ranks of ``moved`` sit in other slots from now on; what they leave becomes a spare's slot. No pod is
    touched."""
    seats = [moved.get(rank, slot) for rank, slot in enumerate(ranked_slots(assignment))]
    return _since(_revised(changed(assignment, rank_to_slot=tuple(seats))), assignment.vacant_since)


def rebuilt(assignment: AssignmentStatus) -> AssignmentStatus:
    """Slots without a node are the spares' that were not found again."""
    return _revised(changed(assignment, vacant=tuple(slot for slot, node in enumerate(assignment.nodes) if not node)))


def resized(assignment: AssignmentStatus, seats: Sequence[int]) -> AssignmentStatus:
    """The ranks sit in ``seats``, in rank order. Slots left out hold spares, or nothing that is looked for."""
    ranked = set(seats)
    vacant = tuple(slot for slot in assignment.vacant if slot in ranked)
    order = () if tuple(seats) == tuple(range(len(assignment.nodes))) else tuple(seats)
    return _since(_revised(changed(assignment, rank_to_slot=order, vacant=vacant)), assignment.vacant_since)


def retired(assignment: AssignmentStatus, slots: Iterable[int]) -> AssignmentStatus:
    """The nodes of ``slots`` are given back, and no others are sought for them."""
    gone = set(slots)
    without = vacated(assignment, gone, 0.0)
    return _revised(changed(without, vacant=tuple(slot for slot in without.vacant if slot not in gone)))


def sought(assignment: AssignmentStatus, count: int) -> AssignmentStatus:
    """So many slots without a rank are to get a node, further ones if need be. The same object: they are already."""
    seats = tuple(ranked_slots(assignment))
    ranked = set(seats)
    empty = [slot for slot, node in enumerate(assignment.nodes) if not node and slot not in ranked]
    total = len(assignment.nodes) + max(0, count - len(empty))
    further = range(len(assignment.nodes), total)
    vacant = tuple(sorted([*lacking(assignment), *[*empty, *further][:count]]))
    if vacant == assignment.vacant:
        return assignment
    seen = assignment.incarnations
    fresh = tuple((seen[slot] if slot < len(seen) else 0) + 1 for slot in further)
    return _revised(
        changed(
            assignment,
            nodes=(*assignment.nodes, *[""] * len(further)),
            incarnations=(*seen[: len(assignment.nodes)], *fresh, *seen[total:]),
            vacant=vacant,
            rank_to_slot=() if seats == tuple(range(total)) else seats,
        )
    )


def world(assignment: AssignmentStatus) -> int:
    """The number of ranks, which is the number of nodes that train."""
    return len(assignment.rank_to_slot or assignment.nodes)


def ranked_slots(assignment: AssignmentStatus) -> Sequence[int]:
    """The slot of every rank, in rank order."""
    return assignment.rank_to_slot or range(len(assignment.nodes))


def lacking(assignment: AssignmentStatus) -> tuple[int, ...]:
    """Vacant slots of ranks: the gang cannot start without them, as it can without its spares."""
    if not assignment.vacant or not assignment.rank_to_slot:
        return assignment.vacant
    ranked = set(assignment.rank_to_slot)
    return tuple(slot for slot in assignment.vacant if slot in ranked)


def slot_of_rank(assignment: AssignmentStatus, rank: int) -> int:
    """The slot that holds ``rank``."""
    return assignment.rank_to_slot[rank] if assignment.rank_to_slot else rank


def slot_ranks(assignment: AssignmentStatus) -> tuple[int, ...]:
    """The rank of every slot; -1 for a spare."""
    if not assignment.rank_to_slot:
        return tuple(range(len(assignment.nodes)))
    ranks = [-1] * len(assignment.nodes)
    for rank, slot in enumerate(assignment.rank_to_slot):
        ranks[slot] = rank
    return tuple(ranks)


def members(assignment: AssignmentStatus, others: Mapping[int, int] | None = None) -> tuple[StartMembers, ...]:
    """Slot ranges of the ranks by incarnation, lowest incarnation first. ``others``: slots of another incarnation than
    they are assigned."""
    by_incarnation: dict[int, list[int]] = {}
    for slot in ranked_slots(assignment):
        by_incarnation.setdefault((others or {}).get(slot, assignment.incarnations[slot]), []).append(slot)
    return tuple(
        StartMembers(slots=format_ranges(slots), incarnation=incarnation)
        for incarnation, slots in sorted(by_incarnation.items())
    )


def order(assignment: AssignmentStatus) -> str:
    """The slots in rank order, as START has them; empty when every rank sits in the slot of its number."""
    seats = tuple(ranked_slots(assignment))
    return "" if seats == tuple(range(len(seats))) else format_order(seats)


def spilled(
    assignment: AssignmentStatus, namespace: str, run: str, run_uid: str
) -> tuple[AssignmentStatus, EnsureConfigMap | None]:
    """Name the ConfigMap that must hold an assignment too large for status; it is written first."""
    whole = {"nodes": assignment.nodes, "incarnations": assignment.incarnations}
    whole |= {"rankToSlot": assignment.rank_to_slot} if assignment.rank_to_slot else {}
    whole |= {"vacant": assignment.vacant} if len(assignment.vacant) > MOST_VACANT else {}
    content = json.dumps(whole)
    if not assignment.nodes or len(content) <= INLINE_LIMIT:
        return changed(assignment, config_map=""), None
    # Named by its digest too: what was made for a status that was never written must not stand in for this one.
    name = f"{run}-{run_uid[:5]}-assignment-{assignment.revision}-{_digest(content)}"
    kept = immutable_config_map(namespace, run, run_uid, name, {ASSIGNMENT_KEY: content})
    return changed(assignment, config_map=name), kept


def without_spilled(assignment: AssignmentStatus) -> AssignmentStatus:
    """What stays in status of one that lies in a ConfigMap."""
    vacant = assignment.vacant if len(assignment.vacant) <= MOST_VACANT else ()
    return changed(assignment, nodes=(), incarnations=(), rank_to_slot=(), vacant=vacant)


def restored(assignment: AssignmentStatus, content: str) -> AssignmentStatus:
    """The inverse of ``spilled``. Raises ValueError when the content is not the one status names.

    A ConfigMap is anybody's to replace: what does not have the digest in its name is not even decoded.
    """
    if assignment.config_map.rpartition("-")[2] != _digest(content):
        raise ValueError(f"ConfigMap {assignment.config_map} does not hold the assignment {assignment.hash}")
    data = nesting.loads(content)
    whole = changed(
        assignment,
        nodes=tuple(data["nodes"]),
        incarnations=tuple(data["incarnations"]),
        rank_to_slot=tuple(data.get("rankToSlot", ())),
        vacant=tuple(data.get("vacant", assignment.vacant)),
    )
    if _hash(whole) != assignment.hash:
        raise ValueError(f"ConfigMap {assignment.config_map} does not hold the assignment {assignment.hash}")
    return whole


def _revised(new: AssignmentStatus) -> AssignmentStatus:
    return changed(new, revision=new.revision + 1, config_map="", hash=_hash(new))


def _since(assignment: AssignmentStatus, moment: float | None) -> AssignmentStatus:
    """Spares may be waited for without end: the clock runs only while a rank has no node."""
    if not lacking(assignment):
        since = None
    else:
        since = assignment.vacant_since if assignment.vacant_since is not None else moment
    return changed(assignment, vacant_since=since)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:16]


def _hash(assignment: AssignmentStatus) -> str:
    content = [assignment.nodes, assignment.incarnations, assignment.vacant, assignment.rank_to_slot]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
