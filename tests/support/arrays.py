"""Arrays in memory: a TrainingRunSet, its runs, and an operator that may die between any two writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.api.run_set import TrainingRunSetSpec, TrainingRunSetStatus
from lockstep.api.run_status import AssignmentStatus, Condition, TrainingRunStatus
from lockstep.core.arrays.members import governed, index_of, is_recorded, read_ranges, run_name
from lockstep.core.arrays.run_set import decide_run_set
from lockstep.core.model.array_views import RunSetPlan, RunSetSnapshot, RunSetView
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables

NOW = 1_795_000_000.0
RUN: dict[str, Any] = {"nodes": 1, "image": "trainer", "command": ["train"]}
HOLDING = AssignmentStatus(nodes=("n0",), incarnations=(1,))


def set_spec(indices: str = "0-9", **fields: Any) -> TrainingRunSetSpec:
    """An array of runs of one node."""
    return TrainingRunSetSpec.model_validate({"indices": indices, "template": {"spec": RUN}} | fields)


def run_set(
    name: str = "sweep", status: TrainingRunSetStatus | None = None, indices: str = "0-9", **fields: Any
) -> RunSetView:
    """A set of namespace team."""
    spec = set_spec(indices, **fields)
    status = status or TrainingRunSetStatus()
    return RunSetView("team", name, f"uid-{name}", 1, "1", NOW, spec, status)


def ended(reason: str) -> TrainingRunStatus:
    """The status of a run that came to its end: Succeeded, Cancelled, or why it failed."""

    def condition(kind: str, word: str) -> Condition:
        return Condition(type=kind, status=word, reason=reason, last_transition_time=NOW)  # type: ignore[arg-type]

    succeeded = "True" if reason == "Succeeded" else "False"
    return TrainingRunStatus(conditions=(condition("Finished", "True"), condition("Succeeded", succeeded)))


def member(owner: RunSetView, index: int, status: TrainingRunStatus | None = None, **changes: Any) -> RunView:
    """The run of an index."""
    assert owner.spec is not None
    view = RunView(
        namespace=owner.namespace,
        name=run_name(owner.name, index),
        uid=f"uid-{owner.name}-{index}",
        generation=1,
        resource_version="1",
        created_at=NOW,
        spec=owner.spec.template.spec,
        status=status or TrainingRunStatus(),
        set_uid=owner.uid,
        set_name=owner.name,
    )
    return replace(view, **changes)


@dataclass
class ArrayWorld:
    """One namespace: what the API server has, and what one operator process has seen go."""

    sets: dict[str, RunSetView] = field(default_factory=dict)
    runs: dict[str, RunView] = field(default_factory=dict)
    seen: dict[str, RunView] = field(default_factory=dict)  # the operator's cache of runs
    departed: dict[tuple[str, int], RunView] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)  # names of runs, in the order they were created
    unrecorded: list[str] = field(default_factory=list)  # deleted when only this operator process knew of them
    refuses: set[str] = field(default_factory=set)  # names of runs that an admission webhook will not have
    asked: list[str] = field(default_factory=list)  # names of runs that were to be created, in this order
    heard: dict[str, dict[int, str]] = field(default_factory=dict)  # set -> refusals that are not on record yet
    fruitless: dict[str, int] = field(default_factory=dict)
    vanished: list[str] = field(default_factory=list)  # deleted, and no operator can know of them any more
    now: float = NOW
    serial: int = 0

    def apply(self, view: RunSetView) -> None:
        """`kubectl apply` of a set."""
        self.sets[view.name] = view

    def edit(self, name: str, **fields: Any) -> None:
        """`kubectl edit`."""
        before = self.sets[name]
        assert before.spec is not None
        spec = TrainingRunSetSpec.model_validate(before.spec.dump() | fields)
        self.sets[name] = replace(before, spec=spec, generation=before.generation + 1)

    # -- the operator

    def hear(self) -> None:
        """The watch catches up."""
        for name, run in list(self.seen.items()):
            now = self.runs.get(name)
            if now is None or now.uid != run.uid:
                self._see_go(run)
        self.seen = dict(self.runs)

    def crash(self) -> None:
        """Another process begins with nothing but a list of all there is."""
        for memory in (self.departed, self.heard, self.fruitless):
            memory.clear()
        self.seen = dict(self.runs)
        self.vanished += self.unrecorded
        self.unrecorded.clear()

    def snapshot(self, name: str) -> RunSetSnapshot:
        """What the operator sees of a set."""
        owner = self.sets[name]
        own = {run.name: run for run in self.seen.values() if run.set_uid == owner.uid}
        runs = {index: governed(run, owner) for run in own.values() if (index := index_of(run)) is not None}
        assert owner.spec is not None
        taken = {i for i in range(100) if run_name(name, i) in self.seen and run_name(name, i) not in own}
        departed = {i: run for (uid, i), run in self.departed.items() if uid == owner.uid and i not in runs}
        refused, fruitless = dict(self.heard.get(name, {})), self.fruitless.get(name, 0)
        return RunSetSnapshot(owner, runs, departed, frozenset(taken), refused, fruitless, sets=self.sets)

    def look(self, name: str, *, writes: int | None = None) -> RunSetPlan:
        """Decide and act; after so many ``writes`` the operator dies (None: it lives)."""
        left = float("inf") if writes is None else writes
        plan = decide_run_set(self.snapshot(name), Tunables(), self.now)
        if plan.status is not None:
            if left <= 0:
                self.crash()
                return plan
            self._write(name, plan)
            left -= 1
        if self._create_all(name, plan, left) is None:
            self.crash()
            return plan
        if plan.delete_set:
            del self.sets[name]
        if plan.status is None:
            uid = f"uid-{name}"
            self.departed = {key: run for key, run in self.departed.items() if key[0] != uid}
        return plan

    def settle(self, name: str, rounds: int = 30) -> None:
        """Look until there is nothing to do."""
        for _ in range(rounds):
            self.hear()
            plan = self.look(name)
            if plan.status is None and not plan.creates:
                return
        raise AssertionError("it does not come to rest")

    def admit(self, free: int) -> None:
        """Nodes for whoever may have them, as the admission cycle gives them."""
        holding: dict[str, int] = {}
        for run in self.runs.values():
            holding[run.set_uid] = holding.get(run.set_uid, 0) + int(bool(run.status.assignment.nodes))
        for name, run in sorted(self.runs.items()):
            owner = next((view for view in self.sets.values() if view.uid == run.set_uid), None)
            told = governed(run, owner)
            assert told.spec is not None
            if run.status.assignment.nodes or run.status.conditions or told.spec.cancel or told.spec.suspend:
                continue
            width = owner.spec.max_running if owner is not None and owner.spec is not None else None
            if free <= 0 or (width is not None and holding[run.set_uid] >= width):
                continue
            free -= 1
            holding[run.set_uid] += 1
            self.runs[name] = replace(run, status=TrainingRunStatus(assignment=HOLDING))

    def obey(self) -> None:
        """Runs that are cancelled, by whomever, end."""
        for name, run in self.runs.items():
            owner = next((view for view in self.sets.values() if view.uid == run.set_uid), None)
            told = governed(run, owner)
            if told.spec is not None and told.spec.cancel and not run.status.conditions:
                self.runs[name] = replace(run, status=ended("Cancelled"))

    # -- the rest of the cluster

    def finish(self, name: str, reason: str = "Succeeded") -> None:
        """A run comes to its end."""
        self.runs[name] = replace(self.runs[name], status=ended(reason))

    def delete(self, name: str) -> None:
        """`kubectl delete trun`."""
        run = self.runs.pop(name)
        owner = next((view for view in self.sets.values() if view.uid == run.set_uid), None)
        if owner is None or index_of(run) not in _on_record(owner):
            (self.unrecorded if name in self.seen else self.vanished).append(name)

    def expire(self) -> None:
        """Runs whose time after their end is over are deleted, as ``core.waiting`` does it."""
        for name, run in list(self.runs.items()):
            owner = next((view for view in self.sets.values() if view.uid == run.set_uid), None)
            if run.status.conditions and is_recorded(run, owner):
                del self.runs[name]

    def names(self) -> set[str]:
        """Of the runs there are."""
        return set(self.runs)

    def _write(self, name: str, plan: RunSetPlan) -> None:
        assert plan.status is not None
        self.sets[name] = replace(self.sets[name], status=plan.status)
        self.heard.pop(name, None)

    def _create_all(self, name: str, plan: RunSetPlan, left: float) -> int | None:
        """How many were made; None: the operator died before it could have made what it was to make."""
        refusal = self.sets[name].status.refusal
        known = read_ranges(refusal.indices) if refusal is not None else frozenset[int]()
        refused: dict[int, str] = {}
        made = 0
        for create in plan.creates:
            if made == plan.room:
                break
            if left <= 0:
                return None
            left -= 1
            self.asked.append(create.name)
            if create.name in self.refuses:
                refused[create.index] = f"denied: {create.name}"
            else:
                self._create(dict(create.body))
                made += 1
        if refused:
            self.heard.setdefault(name, {}).update(refused)
        if made:
            self.fruitless.pop(name, None)
        elif refused.keys() - known:
            self.fruitless[name] = self.fruitless.get(name, 0) + 1
        return made

    def _create(self, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        name = meta["name"]
        if name not in self.runs:
            self.serial += 1
            made = {**meta, "uid": f"uid-{name}-{self.serial}", "resourceVersion": "1", "generation": 1}
            self.runs[name] = parse_run({**body, "metadata": made | {"creationTimestamp": "2026-11-22T00:00:00Z"}})
            self.made.append(name)
        self.seen[name] = self.runs[name]  # the answer, or what a read then shows

    def _see_go(self, run: RunView) -> None:
        index = index_of(run)
        if index is not None:
            self.departed[run.set_uid, index] = run


def _on_record(owner: RunSetView) -> set[int]:
    from lockstep.core.model.ranges import parse_ranges

    known = owner.status.indices
    texts = (known.active, known.succeeded, known.failed, known.cancelled)
    return {index for text in texts for index in parse_ranges(text)}
