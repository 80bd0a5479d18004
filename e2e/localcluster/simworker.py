"""What one simulated worker does with the operator's orders: the protocol's state machine. Pure."""

import math
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
LONGEST_POLL = 15.0  # seconds


@dataclass(frozen=True)
class Training:
    """The pretended trainer, the same on every rank."""

    step_seconds: float = 0.1
    total_steps: int = 100
    exit_rank: int | None = None  # this rank fails with code 1 …
    exit_step: int = 0  # … when it has done this step …
    exit_attempt: int = 1  # … of this attempt; the others then wait for it for ever, as collectives do
    exit_times: int = 1  # and after one step more in each of the attempts that follow, until it failed so often
    saves: bool = False  # each attempt has saved its first step, to a tier that all ranks share, and asks when to save

    def fails_in(self, attempt: int) -> bool:
        """Whether ``exit_rank`` fails in this attempt."""
        return self.exit_rank is not None and 0 <= attempt - self.exit_attempt < self.exit_times

    def last_step(self, attempt: int) -> int:
        """The step that no rank gets beyond."""
        if self.fails_in(attempt):
            return min(self.exit_step + attempt - self.exit_attempt, self.total_steps)
        return self.total_steps


def loss_at(step: int) -> str:
    """Falls from 8 towards 2, the same in every run."""
    return f"{2 + 6 * math.exp(-step / 200):.4f}"


@dataclass
class SimWorker:
    """One worker. Times are Unix seconds, given by the caller; ports are too."""

    run_uid: str
    slot: int
    incarnation: int
    pod_uid: str
    training: Training
    phase: str = "Preparing"
    attempt: int = 0  # of the child it runs or last ran
    ready_for: int = 0
    port: int = 0
    rank: int = -1
    start: Json | None = None
    exit: Json | None = None
    started_at: float = 0.0
    resumed_from: int = 0
    epoch: list[int] | None = None
    seen: int = 0
    heartbeat_seconds: float = 2.0
    must_register: bool = True  # before anything else
    is_complete: bool = False
    released: dict[int, float] = field(default_factory=dict)  # attempt: when
    inventory: list[Json] = field(default_factory=list)  # newest last
    verified: list[Json] = field(default_factory=list)
    save: Json | None = None  # what was asked for and not yet done
    saved: str = ""  # id of the last one done
    fresh: list[Json] = field(default_factory=list)  # checkpoints of the attempt

    def obey(self, reply: Json, port: int, now: float) -> None:
        """Take in a reply; ``port`` is a free one, for a barrier that it may begin."""
        if self.epoch is not None and reply["epoch"] < self.epoch:
            return  # a leader that has been replaced
        self.epoch, self.seen = reply["epoch"], reply["revision"]
        self.heartbeat_seconds = reply["heartbeatSeconds"]
        phase, attempt = reply["phase"], reply["attempt"]
        wished = reply.get("save")
        self.save = wished if wished and self.training.saves and wished["id"] != self.saved else None
        if phase == "Prepare" and attempt > max(self.attempt, self.ready_for):
            self._prepare(attempt, port)
        elif phase == "Prepare" and (wanted := reply.get("verify")):
            self.verified = [{"tier": wanted["tier"], "path": wanted["path"], "verdict": "Valid", "reason": ""}]
        elif phase == "Run" and self.ready_for == attempt > self.attempt:
            self._start(reply, now)
        elif phase == "Stop" and self.phase == "Running":
            self._end(code=None, signal=15, reason="StoppedOnRequest", at=now)
        elif phase == "Complete":
            self.is_complete = True

    def advance(self, now: float) -> None:
        """Let the child end when its time has come."""
        self._save_when_due(now)
        end = self.ends_at()
        if end is not None and now >= end:
            failed = self.rank == self.training.exit_rank and self.training.fails_in(self.attempt)
            self._end(code=1 if failed else 0, signal=None, reason="Error" if failed else "Completed", at=end)

    def ends_at(self) -> float | None:
        """When the child will end by itself; None while none runs or when it will hang."""
        if self.phase != "Running":
            return None
        last = self.training.last_step(self.attempt)
        fails_here = last < self.training.total_steps
        if fails_here and self.rank != self.training.exit_rank:
            return None
        return self.started_at + max(0, last - self.resumed_from) * self.training.step_seconds

    def report(self, now: float, mono: float, wait_seconds: float) -> Json:
        """The body of /v1/report without what identifies the worker."""
        return {
            "phase": self.phase,
            "attempt": self.attempt,
            "readyFor": self.ready_for,
            "port": self.port,
            "stepsPort": self.port,
            "start": self.start,
            "exit": self.exit,
            "progress": self._progress(now),
            "newCheckpoints": self.fresh,
            "verified": self.verified,
            "listens": self.training.saves and self.phase == "Running",
            "saved": self.saved,
            "wall": now,
            "mono": mono,
            "epoch": self.epoch,
            "seen": self.seen,
            "waitSeconds": wait_seconds,
        }

    @property
    def poll_seconds(self) -> float:
        """How long the operator may hold the next report open."""
        return min(self.heartbeat_seconds if self.phase == "Running" else LONGEST_POLL, LONGEST_POLL)

    def _prepare(self, attempt: int, port: int) -> None:
        self.phase, self.ready_for, self.port = "Ready", attempt, port
        self.verified, self.fresh = [], []
        self.must_register = True  # a barrier begins with a new inventory

    def _start(self, reply: Json, now: float) -> None:
        self.phase, self.attempt, self.ready_for = "Running", reply["attempt"], 0
        self.start, self.exit, self.rank = reply["start"], None, reply["rank"]
        self.started_at = self.released[self.attempt] = now
        self.fresh = []
        resume = reply["start"].get("resume")
        self.resumed_from = resume["step"] if resume else 0
        if self.training.saves:
            self.fresh = [self._saved(self.resumed_from + 1)]
            self.inventory = [*self.inventory[-7:], *self.fresh]

    def _save_when_due(self, now: float) -> None:
        progress = self._progress(now)
        if self.save is None or self.phase != "Running" or progress is None or progress["step"] < self.save["atStep"]:
            return
        row = self._saved(max(self.save["atStep"], self.resumed_from + 1)) | {"committedAt": now}
        self.fresh, self.inventory = [row], [*self.inventory[-7:], row]
        self.saved, self.save = self.save["id"], None

    def _saved(self, step: int) -> Json:
        """The row of a checkpoint in the inventory."""
        path = f"/simulated/{self.run_uid}/a{self.attempt}/step-{step}"
        return {
            "tier": "shared",
            "step": step,
            "path": path,
            "verdict": "Valid",
            "format": "Manifest",
            "attempt": self.attempt,
            "runUid": self.run_uid,
            "bytes": 1,
            "committedAt": self.started_at,
        }

    def _end(self, *, code: int | None, signal: int | None, reason: str, at: float) -> None:
        self.phase = "Exited"
        self.exit = {"code": code, "signal": signal, "at": at, "reason": reason, "stderrTail": ""}

    def _progress(self, now: float) -> Json | None:
        if not self.started_at:
            return None
        end = self.exit["at"] if self.exit else now
        last = self.training.last_step(self.attempt)
        step = min(last, self.resumed_from + int((end - self.started_at) / self.training.step_seconds))
        if step == self.resumed_from:
            return None
        at = self.started_at + (step - self.resumed_from) * self.training.step_seconds
        return {"step": step, "at": at, "loss": loss_at(step), "totalSteps": self.training.total_steps}
