"""The newest word of the operator: what this node is to do, and since when nothing else was said."""

from __future__ import annotations

import time
from typing import List, Optional

from lockstep.worker.link.operator_link import PROTOCOL, Link
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON

OVERTAKEN_SECONDS = 30.0  # a reply that is older by more was written by a clock that was set back
SET_BACK_SECONDS = 30.0  # nobody answers by a lease that another has taken: what still comes was under way
SPREAD_PER_RANK = 0.0003  # seconds: the operator answers a few thousand polls a second


class OperatorView:
    """Used by the main thread only."""

    def __init__(self) -> None:
        self.desired: JSON = {"phase": "Hold"}
        self.held_since: Optional[float] = None  # monotonic; since when every reply has said Hold
        self.contact = time.monotonic()  # when the leader answered last
        self.refusal = ""  # why the operator does not speak with this worker
        self.clock_ahead = 0.0  # seconds, of the operator's clock
        self._served_at = 0.0  # when the operator wrote what is desired, by its clock
        self._outdated_since: Optional[float] = None  # monotonic; since when only lower epochs answer

    def take(self, reply: JSON, link: Link) -> bool:
        """True when it is the leader's, whether or not a newer one of its came first."""
        try:
            epoch, revision, phase = [int(part) for part in reply["epoch"]], int(reply["revision"]), reply["phase"]
            heartbeat, served_at = float(reply["heartbeatSeconds"]), float(reply["serverTime"])
            world = int(reply.get("worldSize", 0))
        except (KeyError, TypeError, ValueError) as error:
            log_line(f"the operator's reply is not understood: {error!r}")
            return False
        if self._judge_epoch(epoch, link):
            return False
        self.contact, self.refusal = time.monotonic(), ""
        if epoch == link.epoch and 0 < self._served_at - served_at < OVERTAKEN_SECONDS:
            return True  # a newer one came first, on the other connection
        # In this order: a report in between must not name an older leader's revision as one of the new leader's.
        link.seen, link.epoch, self._served_at = revision, epoch, served_at
        link.heartbeat = min(60.0, max(0.1, heartbeat))
        link.spread = min(link.heartbeat / 20.0, SPREAD_PER_RANK * world)
        self.clock_ahead = time.time() - served_at
        if phase != "Hold":
            self.desired, self.held_since = reply, None
        elif self.held_since is None:
            self.held_since = self.contact
        return True

    def stop_grace(self) -> float:
        """Seconds that a program gets to end by itself when it is told to."""
        return float(self.desired.get("stopGraceSeconds", 30))

    def _judge_epoch(self, epoch: List[int], link: Link) -> bool:
        """True: of a leader that was replaced. Who alone answers for so long is none: the Lease was set back, by a
        backup."""
        if link.epoch is None or epoch >= link.epoch:
            self._outdated_since = None
            return False
        if self._outdated_since is None:
            self._outdated_since = time.monotonic()
        return time.monotonic() - self._outdated_since < SET_BACK_SECONDS

    def take_refusal(self, message: str) -> None:
        """The operator has refused the protocol itself."""
        self.refusal = f"the operator does not speak protocol {PROTOCOL}: {message}"
