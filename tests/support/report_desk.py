"""A book of reports, and workers that write in it."""

from typing import Any

import msgspec

from lockstep.controller.workers.protocol import Registration, Report, State
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.worker_report import CheckpointReport
from support.manual_clock import ManualClock

RUN = "run-1"
CLAIM = SenderClaim(RUN, 0, 1, "pod-0-1")
NEWER = SenderClaim(RUN, 0, 2, "pod-0-2")
PREPARE = Directive(1, DesiredPhase.PREPARE, (1, 1), (0, 1))


class Desk:
    """A book with a clock to move and a list of what it woke."""

    def __init__(self) -> None:
        self.clock = ManualClock(now=1000.0)
        self.woken: list[str] = []
        self.book = ReportBook(self.clock, self.woken.append)

    def state(self, **fields: Any) -> dict[str, Any]:
        return {
            "phase": "Preparing",
            "wall": self.clock.now(),
            "mono": self.clock.monotonic() + 2_000_000,
            **fields,
        }

    def register(
        self, claim: SenderClaim = CLAIM, *, inventory: tuple[CheckpointReport, ...] = (), **fields: Any
    ) -> None:
        body = Registration(
            protocol=1,
            run_uid=claim.run_uid,
            slot=claim.slot,
            incarnation=claim.incarnation,
            pod_uid=claim.pod_uid,
            namespace="team",
            run="llama",
            address="10.0.0.1",
            report=msgspec.convert(self.state(**fields), State),
            inventory=inventory,
        )
        self.book.register(claim, "gpu-1", body)

    def report(self, claim: SenderClaim = CLAIM, **fields: Any) -> None:
        sender = {
            "protocol": 1,
            "runUid": claim.run_uid,
            "slot": claim.slot,
            "incarnation": claim.incarnation,
            "podUid": claim.pod_uid,
        }
        self.book.report(claim, msgspec.convert({**sender, **self.state(**fields)}, Report))

    def wakes(self) -> int:
        """How often the run was woken since the last call."""
        count = len(self.woken)
        self.woken.clear()
        return count
