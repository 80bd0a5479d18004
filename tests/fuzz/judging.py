"""What has to hold of every decision, whatever it was made for, and a tally of those that were looked at."""

from __future__ import annotations

import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from fuzz.structural import problem, schema_of
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.runtime.patches import dump_status
from lockstep.controller.workers.orders import Orders, encode_reply
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.poison_runs import admit_isolating_failures
from lockstep.core.decide import decide
from lockstep.core.model.plan import ClusterPlan, Plan, StatusWrite
from lockstep.core.model.snapshot import ClusterSnapshot, RunSnapshot
from lockstep.core.model.tunables import Tunables
from lockstep.core.run.undecidable import without_deciding

STATUS_BYTES = 64 * 1024
LOOK_SECONDS = 1.0
"""Of the processor, for one look at a small gang; the operator takes half of it for an excess."""
WRITES_AT_REST = 20
"""Of the status of one run in a minute in which nothing happens."""
_NOTE = 1024
_MOST_LOOKS = 400


class FoundError(Exception):
    """Something that must not be. ``signature`` is the same for what is the same fault."""

    def __init__(self, signature: str, words: str) -> None:
        super().__init__(f"{signature}: {words}")
        self.signature, self.words = signature, words


@dataclass
class Tally:
    """How much was looked at, and what was found: the first of each signature, in words."""

    done: Counter[str] = field(default_factory=Counter)
    found: dict[str, str] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)

    def note(self, error: FoundError, context: str = "") -> None:
        self.times[error.signature] += 1
        self.found.setdefault(error.signature, f"{context}\n{error.words}" if context else error.words)


class Judge:
    """Decides as the operator does, and holds what comes of it to what must be."""

    def __init__(self, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()

    # -- runs

    def decided(self, snapshot: RunSnapshot, tunables: Tunables, now: float) -> Plan:
        """What ``decide`` makes of it. Raises FoundError."""
        self.tally.done["decisions"] += 1
        with _total("decide", len(snapshot.pods)):
            plan = decide(snapshot, tunables, now)
        self._check(plan, snapshot, now)
        return plan

    def without_deciding(self, snapshot: RunSnapshot, tunables: Tunables, now: float) -> None:
        """The path for what cannot be decided has to stand whatever the other one fails by."""
        self.tally.done["without_deciding"] += 1
        with _total("without_deciding"):
            plan = without_deciding(snapshot, tunables, now, "ZeroDivisionError")
        self._check(plan, snapshot, now)

    def at_rest(self, snapshot: RunSnapshot, tunables: Tunables, now: float) -> None:
        """Nothing happens for a minute but what is decided; each write brings another look, as each wake-up does.

        Every other time workers fall silent; else they go on saying what they said.
        """
        speak = self.tally.done["minutes at rest"] % 2
        self.tally.done["minutes at rest"] += 1
        end, writes, words = now + 60.0, 0, list[str]()
        for _ in range(_MOST_LOOKS):
            plan = self.decided(snapshot, tunables, now)
            if plan.status is not None:
                writes += 1
                words.append(difference(snapshot.run.status, plan.status))
                snapshot = with_status(snapshot, plan.status)
            elif plan.wake_at is not None and plan.wake_at < end:
                now = plan.wake_at
                if speak:
                    said = {slot: replace(each, received_at=now) for slot, each in snapshot.reports.items()}
                    snapshot = replace(snapshot, reports=said)
            else:
                return
            if writes > WRITES_AT_REST:
                raise FoundError("writes at rest", f"{writes} in {now - end + 60:.1f} s: {'; '.join(words[-4:])}")
        raise FoundError("looks at rest", f"{_MOST_LOOKS} looks in {now - end + 60:.1f} s, of which {writes} wrote")

    def _check(self, plan: Plan, snapshot: RunSnapshot, now: float) -> None:
        if plan.status is not None:
            self.check_status(plan.status, snapshot.run.status)
        if plan.wake_at is not None and not (math.isfinite(plan.wake_at) and plan.wake_at > now):
            raise FoundError("wake_at", f"{plan.wake_at} at {now}")
        with _total("what is sent", len(snapshot.pods)):
            for sent in (*plan.config_maps, *plan.creates[:1], *plan.creates[-1:], *plan.jobs):
                orjson.dumps(sent.body)
            for one in (plan.dry_run, plan.pod_group, plan.workload):
                if one is not None:
                    orjson.dumps(one.body)
            for made in plan.runs:
                if refused := problem(schema_of("trainingruns", "spec"), made.body["spec"]):
                    raise FoundError("schema of a job that was submitted", f"the CRD refuses spec{refused}")
            for event in plan.events:
                event.note.encode()
                f"{event.reason}{event.action}{event.node}".encode()
            if plan.directive is not None:
                orders = Orders(plan.directive, 1)
                for slot, incarnation in list(enumerate(plan.directive.incarnations))[:2]:
                    encode_reply(
                        orders,
                        slot=slot,
                        incarnation=incarnation,
                        attempt=0,
                        epoch=(1, 1),
                        now=now,
                        heartbeat_seconds=2.0,
                        fence_seconds=60.0,
                    )
        if long := next((event for event in plan.events if len(event.note) > _NOTE), None):
            raise FoundError("event", f"{len(long.note)} characters: {long.note[:80]}")

    def check_status(self, status: TrainingRunStatus, before: TrainingRunStatus | None = None) -> None:
        """Raises FoundError where no API server takes it, nobody can read it, or it is too large."""
        self.tally.done["statuses"] += 1
        with _total("the status", len(status.assignment.nodes)):
            body = dump_status(status)
            size = len(orjson.dumps(body))
        if size > STATUS_BYTES and (before is None or size > len(orjson.dumps(dump_status(before)))):
            largest = sorted(body, key=lambda key: -len(orjson.dumps(body[key])))[:3]
            raise FoundError(f"status size, {largest[0]}", f"{size} bytes, most of it {', '.join(largest)}")
        if refused := problem(schema_of("trainingruns", "status"), body):
            raise FoundError(f"schema {refused.partition(':')[0]}", f"the CRD refuses status{refused}")
        with _total("to read the status"):
            TrainingRunStatus.load(body)

    # -- the cluster

    def admitted(
        self, snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory | None = None
    ) -> ClusterPlan:
        """What an admission cycle decides, of which nobody has to be left out. Raises FoundError."""
        self.tally.done["cycles"] += 1
        memory = memory or CycleMemory()
        with _total("admit"):
            plan = admit_isolating_failures(snapshot, tunables, now, memory)
        for out in memory.excluded_runs.values():
            words = "".join(traceback.format_exception(out.error)[-6:])
            raise FoundError(f"admit raises {_place(out.error)}", words) from out.error
        before = {run.uid: run.status for run in snapshot.runs}
        for write in plan.writes:
            self._check_write(write, before.get(write.uid))
        for queue in plan.queues:
            if refused := problem(schema_of("trainingqueues", "status"), queue.status.dump()):
                raise FoundError("schema of a queue", f"the CRD refuses status{refused}")
        if plan.wake_at is not None and not math.isfinite(plan.wake_at):
            raise FoundError("wake_at of a cycle", f"{plan.wake_at} at {now}")
        return plan

    def taken(self, snapshot: ClusterSnapshot) -> None:
        """Which nodes the pods of runs that hold some take beside these: those that earlier ones are bound to, of which
        each name is one. Raises FoundError."""
        held = {run.uid: run.status.assignment for run in snapshot.runs if run.status.assignment.nodes}
        live = [pod for pod in snapshot.gang_pods if pod.run_uid in held and not pod.is_terminal]
        for pod in live:
            nodes, incarnations = held[pod.run_uid].nodes, held[pod.run_uid].incarnations
            is_asked_for = pod.slot < len(nodes) and pod.incarnation == incarnations[pod.slot]
            if pod.node not in nodes and (is_asked_for or not pod.bound):
                raise FoundError("a node taken by a pod alone", f"{pod.name} takes {pod.node}")
        for (run, slot, incarnation), count in Counter((p.run_uid, p.slot, p.incarnation) for p in live).items():
            if count > 1:
                raise FoundError("pods of one identity", f"{count} of {run}, slot {slot}, incarnation {incarnation}")

    def _check_write(self, write: StatusWrite, before: TrainingRunStatus | None) -> None:
        self.check_status(write.status, before)
        with _total("what is sent"):
            for config_map in write.config_maps:
                orjson.dumps(config_map.body)
            for event in write.events:
                event.note.encode()


def with_status(snapshot: RunSnapshot, status: TrainingRunStatus) -> RunSnapshot:
    """As the API server gives it back."""
    kept = TrainingRunStatus.load(status.dump())
    version = str(int(snapshot.run.resource_version) + 1)
    return replace(snapshot, run=replace(snapshot.run, status=kept, resource_version=version))


@contextmanager
def _total(of: str, gang: int = 0) -> Iterator[None]:
    """Nothing is raised within, and it does not take long; larger gangs may as much longer as they are larger."""
    begun = time.thread_time()
    try:
        yield
    except FoundError:
        raise
    except Exception as error:
        raise FoundError(f"{of} raises {_place(error)}", "".join(traceback.format_exception(error)[-6:])) from error
    if (took := time.thread_time() - begun) > LOOK_SECONDS * max(1.0, gang / 512):
        raise FoundError(f"{of} takes long", f"{took:.1f} s of the processor")


def guarded(of: str, do: Callable[[], Any], *, but: tuple[type[Exception], ...] = ()) -> Any:
    """What ``do`` returns; None where it raises one of those that it may. Raises FoundError."""
    with _total(of):
        try:
            return do()
        except but:
            return None


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/lockstep/" in frame.filename]
    frame = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.filename.rpartition('/lockstep/')[2]}:{frame.name}"


def difference(before: TrainingRunStatus, after: TrainingRunStatus) -> str:
    """In words, field by field."""
    old, new = before.dump(), after.dump()
    return ", ".join(
        f"{key}: {_short(old.get(key))} -> {_short(new.get(key))}" for key in new if old.get(key) != new[key]
    )


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value!s:.160}"
    return f"{value!s:.160}"
