"""At the barrier: getting ready for an attempt, and what is asked of a worker that stands there."""

from __future__ import annotations

import functools
import os
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from lockstep.worker.checkpoints.formats.examination import verify_checkpoint
from lockstep.worker.checkpoints.formats.findings import UNKNOWN, InterruptedCheckError
from lockstep.worker.checkpoints.inventory import survey
from lockstep.worker.checkpoints.pointers import PointerError, rewrite_pointers
from lockstep.worker.checkpoints.previous import previous_saves
from lockstep.worker.checkpoints.tiers import passes_over
from lockstep.worker.checkpoints.unrecognised import left_behind
from lockstep.worker.child.training import InThread
from lockstep.worker.errors import trouble
from lockstep.worker.link.operator_link import Link
from lockstep.worker.node.preflight import Prepared, prepare
from lockstep.worker.node.warmup import PeerServer, WarmUpResult, warm_up
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON, LOCAL, SHARED, Settings, is_elsewhere
from lockstep.worker.steps.service import StepService

RETRY_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 10.0  # at what could not be read
SLOW_SECONDS = 30.0  # for one thing that is looked at on the way: then it is named
STILL_PREPARING = "still preparing: "  # the operator knows these words: no check has failed yet
MOST_TOLD = 8  # checkpoints, the newest, in the line for whoever reads the log
READ_WITHIN_SECONDS = 0.3  # what is read so soon after everything else is told of together with the arrival


class Barrier:
    """Used by the main thread only, but for ``_verifying``.

    ``quiet`` is called before an inventory is taken: nothing is to change in the checkpoint tiers from then on.
    """

    def __init__(
        self, settings: Settings, link: Link, in_thread: InThread, steps: StepService,
        quiet: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._settings, self._link, self._in_thread, self._quiet = settings, link, in_thread, quiet
        self._steps = steps
        self.ready_for = 0  # the attempt that this worker stands ready for
        self.problem = ""  # why it is not ready
        self.suspicious = True  # the next time its disks are to be tried out as well
        # What may be saves of earlier attempts; None: it could not be looked at.
        self.unrecognised: Optional[Sequence[JSON]] = ()
        self.previous_saves: Sequence[JSON] = ()  # what earlier runs of this name left, where this one saved nothing
        self._wanted = 0  # the attempt that the operator gathers for
        self._asked_to_look = 0  # the attempt that it was asked for to look once more …
        self._looked_again = 0  # … and did
        self._port: Optional[socket.socket] = None
        self._dashboard: Optional[socket.socket] = None
        self._approached = 0  # the attempt that was gathered for last
        self._preparing = False  # a thread is at it …
        self._at = "", 0.0  # … and looks at this since then (monotonic)
        self._prepared: Optional[Prepared] = None  # it is: all that lacks is what may still be read
        self._arrive_by = 0.0  # monotonic
        self._verified: Dict[Tuple[Any, ...], JSON] = {}
        self._verifying: Tuple[Any, ...] = ()  # read by the verifying thread: any other value interrupts it
        self._pointed: Optional[JSON] = None
        self._pointing: Tuple[Any, ...] = ()  # the request that was taken up last
        self._warmed: Optional[JSON] = None
        self._warming = ""  # id of the exchange that was begun last
        self._server: Optional[PeerServer] = None
        self._prepare_after = self._look_after = self._verify_after = 0.0  # monotonic

    def approach(self, desired: JSON) -> None:
        """Bring this worker towards standing at the barrier of the attempt, and do there what is asked of it."""
        attempt, rank, world = desired["attempt"], desired.get("rank", -1), desired.get("worldSize", 0)
        self._wanted = attempt
        if self.ready_for == attempt:
            self._verify(desired)
            self._point(desired)
            self._warm_up(desired)
            self._look_again(desired)
        elif self._prepared is not None and self._prepared.attempt == attempt:
            self._verify(desired)
            if not self._verifying or time.monotonic() >= self._arrive_by:
                self._arrive(self._prepared)
        elif not self._preparing and time.monotonic() >= self._prepare_after:
            self.ready_for, self._preparing, self._prepared, self._at = 0, True, None, ("", 0.0)
            if self.problem.startswith(STILL_PREPARING):
                self.problem = ""
            self._verified, self._warmed, self._pointed, self._pointing = {}, None, None, ()
            self._asked_to_look = self._looked_again = 0
            prepared = functools.partial(
                prepare, self._settings, attempt, rank, world, self.suspicious, self._note_place, self._steps.wanted,
                passes_over(desired.get("passOver")),
            )  # fmt: skip
            if attempt != self._approached:
                self._approached = attempt
                self._verify(desired)  # a short one is done by the time that everything else is: told in one report

            def prepare_in_quiet() -> Callable[[], None]:
                self._note_place("the removal of old local checkpoints")
                self._quiet()
                self._note_place("")
                return functools.partial(self._take_prepared, prepared())

            self._in_thread(prepare_in_quiet)
        elif self._preparing:
            self._name_what_is_slow()

    def _note_place(self, what: str) -> None:
        """Called by the preparing thread."""
        self._at = what, time.monotonic()

    def _name_what_is_slow(self) -> None:
        """A mount that hangs lets go of no thread: all that can be said is where it stands."""
        what, since = self._at
        if what and not self.problem and time.monotonic() >= since + SLOW_SECONDS:
            self.problem = f"{STILL_PREPARING}{what} has not answered for {SLOW_SECONDS:.0f} s"
            log_line(f"not ready: {self.problem}")

    def stand_down(self) -> None:
        """The operator gathers for nothing at the moment."""
        self._wanted, self._verifying = 0, ()
        if self._prepared is not None:
            self._prepared = None
            self._release_port()

    def leave(self) -> None:
        """Stand there no longer; the port is free afterwards."""
        self.ready_for, self.unrecognised, self.previous_saves = 0, (), ()
        self.stand_down()
        self._release_port()

    def report(self) -> JSON:
        """What the protocol carries of it."""
        about: JSON = {
            "readyFor": self.ready_for, "port": self._port.getsockname()[1] if self._port else 0,
            "verified": list(self._verified.values())[-8:],
        }  # fmt: skip
        if self._dashboard:
            about["dashboardPort"] = self._dashboard.getsockname()[1]
        if self._looked_again:
            about["lookedAgain"] = self._looked_again
        if self._pointed:
            about["pointed"] = self._pointed
        if self._warmed:
            about["warmed"] = self._warmed
        return about

    def _take_prepared(self, prepared: Prepared) -> None:
        self._preparing = False
        self._release_port()
        if self._wanted == prepared.attempt and not prepared.problem:
            self.problem, self._port, self.suspicious = "", prepared.port, False
            self._steps.hold(prepared.steps_port)
            self._dashboard = prepared.dashboard_port
            self._prepared, self._arrive_by = prepared, time.monotonic() + READ_WITHIN_SECONDS
            return
        prepared.close()
        if prepared.problem:
            if prepared.problem != self.problem:
                log_line(f"not ready: {prepared.problem}")
            self.problem, self.suspicious = prepared.problem, True
            self._prepare_after = time.monotonic() + RETRY_SECONDS

    def _arrive(self, prepared: Prepared) -> None:
        self._prepared, self.ready_for = None, prepared.attempt
        self._look_after = time.monotonic() + LOOK_AGAIN_SECONDS
        self.unrecognised, self.previous_saves = prepared.unrecognised, prepared.previous_saves
        self._link.register(prepared.inventory)
        log_line(f"attempt={prepared.attempt} node={self._settings.node} sees {seen_in_words(prepared.inventory)}")

    def _look_again(self, desired: JSON) -> None:
        """The operator waits a bounded time for what could not be read, or was saved by programs that ended later than
        this node's: tell it as soon as it can be seen."""
        attempt, rank, world = desired["attempt"], desired.get("rank", -1), desired.get("worldSize", 0)
        asked, may_not_be = bool(desired.get("lookAgain")), passes_over(desired.get("passOver"))
        unsure = asked or any(row["verdict"] == UNKNOWN for row in self._link.inventory)
        at_once = asked and self._asked_to_look != attempt
        if not unsure or self._preparing or (not at_once and time.monotonic() < self._look_after):
            return
        self._preparing = True
        if asked:
            self._asked_to_look = attempt
        known, left_before = self._link.inventory, self.unrecognised

        def survey_again() -> Callable[[], None]:
            previous: Sequence[JSON] = ()
            looked, left = asked, left_before
            try:
                found = survey(self._settings, attempt, rank, world, may_not_be=may_not_be)
                if rank >= 0:  # a spare may stand here while others train, and is to tell nothing of their saves
                    left = left_behind(self._settings, rank)
                if not found and rank <= 0:
                    previous = previous_saves(self._settings)
            except Exception:  # the thread's end, as in prepare; the next look may tell more
                found, left, looked = known, left_before, False
            return functools.partial(self._take_survey, attempt, found, left, previous, looked)

        self._in_thread(survey_again)

    def _take_survey(
        self, attempt: int, inventory: List[JSON], left: Optional[Sequence[JSON]], previous: Sequence[JSON],
        looked: bool,
    ) -> None:  # fmt: skip
        self._preparing, self._look_after = False, time.monotonic() + LOOK_AGAIN_SECONDS
        if attempt != self.ready_for:
            return
        if looked:
            self._looked_again = attempt
        self.unrecognised = left
        if inventory != self._link.inventory:
            self.previous_saves = previous
            self._link.register(inventory)

    def _verify(self, desired: JSON) -> None:
        wanted = desired.get("verify")
        if not wanted:
            self._verifying = ()
            return
        request = (wanted["tier"], wanted["path"], wanted["share"], wanted["of"])
        answer = self._verified.get(request)
        if self._verifying == request or (answer and answer["verdict"] != UNKNOWN):
            return
        if answer and time.monotonic() < self._verify_after:
            return
        self._verifying = request
        local = wanted["tier"] == LOCAL  # there each rank reads all of its own shard
        share, of = (0, 1) if local else (wanted["share"], max(1, wanted["of"]))
        copied = self._settings.start_copied and is_elsewhere(self._settings, wanted["path"])

        def read() -> Optional[Callable[[], None]]:
            own = os.path.join(wanted["path"], f"rank-{desired['rank']}")
            directory = own if local and os.path.isdir(own) else wanted["path"]
            try:
                verdict, reason = verify_checkpoint(
                    directory, share, of, form=self._settings.checkpoint_format, run_uid=self._saved_by(wanted["path"]),
                    skew=self._settings.tiers[wanted["tier"]].skew, interrupted=lambda: self._verifying != request,
                    trusts_times=False if copied else None,
                )  # fmt: skip
            except InterruptedCheckError:
                return None
            except Exception as error:  # the thread's end, as above
                verdict, reason = UNKNOWN, repr(error)
            return functools.partial(self._take_verdict, request, verdict, reason)

        self._in_thread(read)

    def _saved_by(self, path: str) -> str:
        """UID of the run that must have saved what is there; empty: any."""
        tier = self._settings.tiers.get(SHARED)
        if self._settings.fenced and tier is not None and tier.root == self._settings.start_root:
            return ""  # it goes on in the directory, and some of it is its own
        return self._settings.start_run_uid if is_elsewhere(self._settings, path) else self._settings.run_uid

    def _take_verdict(self, request: Tuple[Any, ...], verdict: str, reason: str) -> None:
        self._verify_after = time.monotonic() + LOOK_AGAIN_SECONDS
        if self._verifying == request:
            self._verifying = ()
        tier, path = request[:2]
        self._verified[request] = {"tier": tier, "path": path, "verdict": verdict, "reason": reason[:256]}

    def _point(self, desired: JSON) -> None:
        """Only one worker of a directory is asked to, while no program runs anywhere."""
        wanted = desired.get("point")
        if not wanted:
            return
        path, step, form = request = (wanted["path"], wanted["step"], wanted["format"])
        if request == self._pointing:
            return
        self._pointing = request
        answer = {"path": path, "step": step, "problem": ""}

        def rewrite() -> Callable[[], None]:
            try:
                skew = max(tier.skew for tier in self._settings.tiers.values())  # as when it was found valid
                for words in rewrite_pointers(path, form, step, desired["attempt"], skew=skew):
                    log_line(f"attempt={desired['attempt']} {words}")
            except PointerError as error:
                answer["problem"] = str(error)[:256]
            except Exception as error:  # the thread's end, as above
                answer["problem"] = (trouble(error) if isinstance(error, OSError) else repr(error))[:256]
            return functools.partial(self._take_pointed, request, answer)

        self._in_thread(rewrite)

    def _take_pointed(self, request: Tuple[Any, ...], answer: JSON) -> None:
        if request == self._pointing:
            self._pointed = answer

    def _warm_up(self, desired: JSON) -> None:
        wanted, rank = desired.get("warmUp"), desired.get("rank", -1)
        if not wanted or wanted["id"] == self._warming or self._port is None or rank < 0:
            return
        self._warming = wanted["id"]
        if self._server is None:
            self._server = PeerServer(self._port)
        server = self._server
        peers = list(zip(wanted["addresses"], wanted["ports"]))  # noqa: B905, strict is younger than Python 3.8
        log_line(f"attempt={desired['attempt']} rank={rank} exchange with the other nodes: {wanted['kind']}")

        def exchange() -> Callable[[], None]:
            try:
                outcome = warm_up(server, wanted["id"], wanted["kind"], rank, peers)
            except Exception as error:  # the thread's end, as above
                outcome = WarmUpResult(0.0, -1, repr(error))
            return functools.partial(self._take_warmed, wanted["id"], outcome)

        self._in_thread(exchange)

    def _take_warmed(self, identity: str, outcome: WarmUpResult) -> None:
        if identity == self._warming:
            self._warmed = {"id": identity, **outcome._asdict()}
            if outcome.problem:
                log_line(f"the exchange with rank {outcome.peer} failed: {outcome.problem}")

    def _release_port(self) -> None:
        self._steps.release()
        if self._server is not None:
            self._server.close()
            self._server = None
        for held in (self._port, self._dashboard):
            if held is not None:
                held.close()
        self._port = self._dashboard = None


def seen_in_words(inventory: List[JSON]) -> str:
    """The newest checkpoints in words: what this node saw, for whoever asks later why another one was resumed from."""
    newest = sorted(inventory, key=lambda row: (row["step"], row["attempt"]), reverse=True)
    words = []
    for row in newest[:MOST_TOLD]:
        why = f" ({row['reason']})" if row["reason"] else ""
        words.append(f"{row['tier']} a{row['attempt']}/step-{row['step']} {row['verdict']}{why}")
    more = [f"{len(newest) - MOST_TOLD} older ones"] if len(newest) > MOST_TOLD else []
    return "; ".join(words + more) or "no checkpoint"
