"""Which node and which incarnation every slot has. Pods are a function of this and of nothing else.

A slot is a pod identity, a rank a position in the collective; ``rank_to_slot`` joins them and is the
identity unless said. Incarnations never decrease for one run UID, also not across requeues.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from lockstep.api import names
from lockstep.api.run_status import AssignmentStatus, StartMembers
from lockstep.core.plan import EnsureConfigMap
from lockstep.core.ranges import format_ranges

ASSIGNMENT_KEY = "assignment.json"
INLINE_LIMIT = 16 * 1024
"""Bytes of node names and incarnations that status itself may hold."""


def is_held(assignment: AssignmentStatus) -> bool:
    """The gang has been admitted and not yet given its nodes back (some may be vacant)."""
    return bool(assignment.nodes or assignment.config_map)


def assigned(previous: AssignmentStatus, nodes: Sequence[str]) -> AssignmentStatus:
    """A new gang on ``nodes`` (by slot). Every slot starts at an incarnation not used before."""
    seen = previous.incarnations
    incarnations = tuple((seen[slot] if slot < len(seen) else 0) + 1 for slot in range(len(nodes)))
    # Slots that a smaller gang leaves behind keep their count for the day the run grows again.
    return _changed(
        previous,
        nodes=tuple(nodes),
        incarnations=incarnations + seen[len(nodes) :],
        vacant=(),
        vacant_since=None,
    )


def released(assignment: AssignmentStatus) -> AssignmentStatus:
    """All nodes given back; incarnations stay, so that they never repeat."""
    return _changed(assignment, nodes=(), vacant=(), vacant_since=None)


def advanced(assignment: AssignmentStatus, slots: Iterable[int]) -> AssignmentStatus:
    """The next incarnation of ``slots`` on the nodes they have."""
    raised = set(slots)
    return _changed(
        assignment,
        incarnations=tuple(n + (slot in raised) for slot, n in enumerate(assignment.incarnations)),
    )


def vacated(assignment: AssignmentStatus, slots: Iterable[int], now: float) -> AssignmentStatus:
    """The next incarnation of ``slots``, on nodes yet to be found."""
    empty = set(slots)
    return _changed(
        assignment,
        nodes=tuple("" if slot in empty else node for slot, node in enumerate(assignment.nodes)),
        incarnations=tuple(n + (slot in empty) for slot, n in enumerate(assignment.incarnations)),
        vacant=tuple(sorted(empty | set(assignment.vacant))),
        vacant_since=assignment.vacant_since if assignment.vacant else now,
    )


def filled(assignment: AssignmentStatus, found: Mapping[int, str]) -> AssignmentStatus:
    """Vacant slots of ``found`` get their node; ranks and incarnations stay."""
    vacant = tuple(slot for slot in assignment.vacant if slot not in found)
    return _changed(
        assignment,
        nodes=tuple(found.get(slot, node) for slot, node in enumerate(assignment.nodes)),
        vacant=vacant,
        vacant_since=assignment.vacant_since if vacant else None,
    )


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


def members(assignment: AssignmentStatus) -> tuple[StartMembers, ...]:
    """Slot ranges by incarnation, lowest incarnation first."""
    by_incarnation: dict[int, list[int]] = {}
    for slot in range(len(assignment.nodes)):
        by_incarnation.setdefault(assignment.incarnations[slot], []).append(slot)
    return tuple(
        StartMembers(slots=format_ranges(slots), incarnation=incarnation)
        for incarnation, slots in sorted(by_incarnation.items())
    )


def spilled(
    assignment: AssignmentStatus, namespace: str, run: str, run_uid: str
) -> tuple[AssignmentStatus, EnsureConfigMap | None]:
    """Name the ConfigMap that must hold an assignment too large for status; it is written first."""
    content = json.dumps({"nodes": assignment.nodes, "incarnations": assignment.incarnations})
    if not assignment.nodes or len(content) <= INLINE_LIMIT:
        return assignment.model_copy(update={"config_map": ""}), None
    name = f"{run}-{run_uid[:5]}-assignment-{assignment.revision}"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                names.LABEL_RUN: run,
                names.LABEL_RUN_UID: run_uid,
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
            },
            "ownerReferences": [{"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": run, "uid": run_uid}],
        },
        "immutable": True,
        "data": {ASSIGNMENT_KEY: content},
    }
    return assignment.model_copy(update={"config_map": name}), EnsureConfigMap(namespace, name, body)


def restored(assignment: AssignmentStatus, content: str) -> AssignmentStatus:
    """The inverse of ``spilled``. Raises ValueError when the content is not the one status names."""
    data = json.loads(content)
    whole = assignment.model_copy(update={"nodes": tuple(data["nodes"]), "incarnations": tuple(data["incarnations"])})
    if _hash(whole) != assignment.hash:
        raise ValueError(f"ConfigMap {assignment.config_map} does not hold the assignment {assignment.hash}")
    return whole


def _changed(assignment: AssignmentStatus, **changes: object) -> AssignmentStatus:
    new = assignment.model_copy(update={"revision": assignment.revision + 1, "config_map": "", **changes})
    return new.model_copy(update={"hash": _hash(new)})


def _hash(assignment: AssignmentStatus) -> str:
    content = [assignment.nodes, assignment.incarnations, assignment.vacant, assignment.rank_to_slot]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
