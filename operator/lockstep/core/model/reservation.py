"""The record of a reservation: in status, or in a ConfigMap that status names when it is large."""

import hashlib
import json

from lockstep.api.base import nesting
from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import ReservationStatus
from lockstep.core.model.assignment import INLINE_LIMIT
from lockstep.core.model.plan import EnsureConfigMap
from lockstep.core.model.spilled_config_map import immutable_config_map

RESERVATION_KEY = "reservation.json"


def reservation_of(nodes: tuple[str, ...], victims: tuple[str, ...], time: float, deadline: float) -> ReservationStatus:
    """``victims`` by UID, times in Unix seconds."""
    reservation = ReservationStatus(time=time, deadline=deadline, nodes=nodes, victims=victims)
    return changed(reservation, hash=_hash(_content(reservation)))


def spilled(
    reservation: ReservationStatus, namespace: str, run: str, run_uid: str
) -> tuple[ReservationStatus, EnsureConfigMap | None]:
    """Name the ConfigMap that must hold a reservation too large for status; it is written first."""
    content = _content(reservation)
    if len(content) <= INLINE_LIMIT:
        return reservation, None
    name = f"{run}-{run_uid[:5]}-reservation-{reservation.hash}"
    kept = immutable_config_map(namespace, run, run_uid, name, {RESERVATION_KEY: content})
    return changed(reservation, config_map=name), kept


def named(reservation: ReservationStatus) -> ReservationStatus:
    """What status itself holds of one that lies in a ConfigMap."""
    return changed(reservation, nodes=(), victims=()) if reservation.config_map else reservation


def is_unread(reservation: ReservationStatus | None) -> bool:
    """Its ConfigMap has yet to be read."""
    return reservation is not None and bool(reservation.config_map) and not reservation.nodes


def restored(reservation: ReservationStatus, content: str) -> ReservationStatus:
    """The inverse of ``spilled``. Raises ValueError when the content is not the one status names."""
    if _hash(content) != reservation.hash:
        raise ValueError(f"ConfigMap {reservation.config_map} does not hold the reservation {reservation.hash}")
    data = nesting.loads(content)
    return changed(reservation, nodes=tuple(data["nodes"]), victims=tuple(data["victims"]))


def lost(reservation: ReservationStatus) -> ReservationStatus:
    """One whose ConfigMap is gone or holds something else: it names nothing any more, and lapses."""
    return changed(reservation, config_map="", nodes=(), victims=())


def _content(reservation: ReservationStatus) -> str:
    return json.dumps({"nodes": reservation.nodes, "victims": reservation.victims})


def _hash(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:16]
