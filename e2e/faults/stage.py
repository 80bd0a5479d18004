"""A run that trains for one dish: brought to the moment, held there, let go."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import moments, trainer_path
from faults.menu import PREEMPTIONS, Dish, Fault, Phase
from faults.moments import Moment
from harness.training import NODES, Json, TrainingRun, TrainingSite
from harness.waiting import wait_for

RANKS, STEPS, SAVE_EVERY = 3, 40, 10
HIT, BYSTANDER = 1, 2
"""The rank that the fault hits, and the one that an earlier failure of the restore phase comes from."""
SAVE_AT, TRAINING_AT = 20, 24
KNOWN_AT = 15
"""Before a loss breaks the save before it is to be known: workers look for saves every few seconds."""
SAVED_BEFORE_STOP = 18
"""Between this save and the one that is asked for comes no other: it would be taken for the answer."""
PATIENCE = 240.0
"""Seconds for anything: machines may be slow, and nothing here is about speed."""
SIZE = ("--batch=2", "--context=16", "--width=16", "--layers=1")
INSIDE: Mapping[Fault, str] = {
    Fault.SEGFAULT: moments.SEGFAULT,
    Fault.ABORT: moments.ABORT,
    Fault.ERROR: moments.ERROR,
    Fault.EXIT_137: "exit:137",
    Fault.EXIT_93: "exit:93",
    Fault.NAN: moments.POISON,
    Fault.MISTAKE: moments.MISTAKE,
}
"""Faults that the program brings about itself."""
PACE: Mapping[Phase, float] = {Phase.STOP: 0.25}
UNHURRIED = PREEMPTIONS | {Fault.CUT_OPERATOR, Fault.NODE_FREEZE, Fault.API_SERVER, Fault.OPERATOR_KILL, Fault.NAN}
"""Training has to go on for as long as something is broken, and until what broke is told."""
Reference = Sequence[list[Json]]
"""By rank, the steps of a run to which nothing happened."""
OUTLASTED = frozenset({Fault.API_SERVER, Fault.OPERATOR_KILL, Fault.PREEMPTION_KILL})
"""Outages that a save has to come through."""
QUEUE, LOW, HIGH = "faults", "faults-low", "faults-high"
"""A queue within which runs of the class ``HIGH`` send those of ``LOW`` away."""


@dataclass
class Stage:
    """One run, and what is broken for it. ``plan`` is what its trainer carries out."""

    site: TrainingSite
    dish: Dish
    claim: str
    run: TrainingRun = field(init=False)
    plan: tuple[Moment, ...] = ()
    held: bool = False

    # The run

    def apply(self) -> None:
        """Hand it in. Before a launch that is to be disturbed no node reaches the operator."""
        if self._is_early:
            for shape in NODES:
                self.site.world.process_nodes.cut_node(shape.name, "operator")
            self.held = True
        self.plan = _plan(self.dish)
        every = SAVED_BEFORE_STOP if self.dish.phase is Phase.STOP else SAVE_EVERY
        self.run = apply(self.site, self.dish.name, self.claim, self.plan, self._pace, self._grace, every)

    def reach(self) -> None:
        """Return at the moment of the dish, with the run held there where something outside is to be broken."""
        if self.dish.phase is Phase.STOP:
            self._ask_to_stop()
        elif len(self.plan) > 1 and self.plan[0].deed == moments.WAIT:
            self.run.wait("a save is known", lambda: self.run.status.get("checkpoint", {}).get("latest"), PATIENCE)
            self.plan[0].permit(self.run.folder).touch()
        if self._is_early:
            self.run.wait("its pods exist", lambda: len(self.run.pods) == RANKS, PATIENCE)
        if self.dish.phase is Phase.BARRIER:
            self.admit(but=BYSTANDER)
            others = f"{RANKS - 1}/{RANKS}"
            self.run.wait("two are ready", lambda: self.run.status.get("nodesReady") == others, PATIENCE)
        elif self.moment is not None and not self.moment.always:
            marker = self.moment.marker(self.run.folder)
            self.run.wait(f"{marker.name} has come", lambda: marker.exists() or self.run.is_true("Finished"), PATIENCE)
            assert marker.exists(), self.run.summary()

    def _ask_to_stop(self) -> None:
        """Suspend the run where what it saved before cannot be the answer any more, and no other save comes first."""
        before = self.plan[0]
        self.run.wait("it has saved and goes on", before.marker(self.run.folder).exists, PATIENCE)
        self.run.wait("that is known", lambda: self._known_step() > SAVED_BEFORE_STOP, PATIENCE)
        self.run.change(suspend=True)
        self.run.wait("a save is asked for", lambda: self.run.status.get("checkpoint", {}).get("save"), PATIENCE)
        before.permit(self.run.folder).touch()

    def _known_step(self) -> int:
        return int(self.run.status.get("progress", {}).get("step", 0))

    def go_on(self) -> None:
        """End what holds the run, but not what was broken."""
        if self.held:
            self.admit()
        if self.moment is not None:
            with contextlib.suppress(FileNotFoundError):  # of a run that is only being launched
                self.moment.permit(self.run.folder).touch()

    def send_urgent(self) -> TrainingRun:
        """A run of a higher class, for which the one on the stage has to make room."""
        spec = {"queue": QUEUE, "priorityClassName": HIGH, "volumes": []}
        return self.site.apply(f"urgent-{self.dish.name}", len(NODES) - RANKS + 1, ["true"], **spec)

    def admit(self, but: int | None = None) -> None:
        """Let the nodes reach the operator and each other, that of rank ``but`` left out."""
        kept = self.run.nodes[but] if but is not None else ""
        for found in self.site.world.process_nodes.state()["nodes"]:
            if found["name"] != kept and "operator" in found["cuts"] and found["state"] == "up":
                self.site.world.process_nodes.heal_node(found["name"])
        self.held = bool(kept)

    @property
    def moment(self) -> Moment | None:
        """Of the fault itself."""
        return self.plan[-1] if self.plan else None

    @property
    def node(self) -> str:
        """Of the rank hit."""
        return self.run.nodes[HIT]

    @property
    def attempt(self) -> int:
        """That the fault hits."""
        return 2 if self.dish.phase is Phase.RESTORE else 1

    @property
    def _is_early(self) -> bool:
        return _is_early(self.dish)

    @property
    def _pace(self) -> float:
        return PACE.get(self.dish.phase, 0.4 if self.dish.fault in UNHURRIED else 0.0)

    @property
    def _grace(self) -> str:
        """For a save: one that has to come through an outage may take its time, one that never comes may not."""
        return "3m" if self.dish.fault in OUTLASTED else "30s"

    # Processes

    def process(self) -> int:
        """Pid on this machine of the training process of the rank hit, or of its worker where none runs yet."""
        if self.dish.phase is not Phase.BARRIER:
            return wait_for("the process is there", lambda: self.run.processes().get(HIT), seconds=PATIENCE)
        return wait_for("the worker is there", self._worker, seconds=PATIENCE)

    def _worker(self) -> int:
        wanted = {f"LOCKSTEP_RUN_UID={self.run.uid}".encode(), f"LOCKSTEP_SLOT={HIT}".encode()}
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
        return min(found, default=0)

    def signal(self, number: int) -> None:
        os.kill(self.process(), number)


def _is_early(dish: Dish) -> bool:
    """No program runs yet."""
    at_a_process = dish.fault in INSIDE or dish.fault in (Fault.KILL, Fault.SIGSTOP)
    return dish.phase is Phase.BARRIER or (dish.phase is Phase.LAUNCH and not at_a_process)


def _plan(dish: Dish) -> tuple[Moment, ...]:
    """The moments of one dish; the fault's own is the last."""
    fault, phase = dish.fault, dish.phase
    deed = INSIDE.get(fault, moments.WAIT)
    if _is_early(dish):
        return ()
    if phase is Phase.LAUNCH:
        return (Moment("fault", moments.FRESH if fault is Fault.NAN else moments.START, deed, HIT),)
    known = (Moment("known", moments.STEP, moments.WAIT, HIT, KNOWN_AT),) if fault is Fault.NAN else ()
    if phase is Phase.TRAINING:
        return (*known, Moment("fault", moments.STEP, deed, HIT, TRAINING_AT, always=fault is Fault.MISTAKE))
    in_save = moments.SAVED if fault is Fault.TORN_SAVE else moments.SAVE
    if phase is Phase.SAVE:
        return (*known, Moment("fault", in_save, deed, HIT, SAVE_AT))
    if phase is Phase.STOP:
        before = Moment("before", moments.STEP, moments.WAIT, HIT, SAVED_BEFORE_STOP + 1)
        return (before, Moment("fault", in_save, deed, HIT, asked=True))
    earlier = Moment("earlier", moments.STEP, moments.ERROR, BYSTANDER, TRAINING_AT)
    return (earlier, Moment("fault", moments.RESTORE, deed, HIT))


def apply(
    site: TrainingSite,
    name: str,
    claim: str,
    plan: Sequence[Moment] = (),
    step_delay: float = 0.0,
    grace: str = "30s",
    save_every: int = SAVE_EVERY,
) -> TrainingRun:
    """A run of the trainer with its moments."""
    options = [*SIZE, f"--steps={STEPS}", f"--save-every={save_every}", f"--step-delay={step_delay}"]
    checkpoint: dict[str, Any] = {
        "format": "Manifest",
        "shared": {"claimName": claim},
        "cadence": {"interval": "Disabled"},
        "gracePeriod": grace,
    }
    return site.apply(
        name,
        RANKS,
        ["python3", "-B", str(trainer_path()), *options],
        launcher={"type": "JAX"},
        checkpoint=checkpoint,
        env=[
            {"name": moments.PLAN, "value": moments.encoded(plan)},
            {"name": "JAX_ENABLE_PREEMPTION_SERVICE", "value": "false"},  # it would swallow SIGTERM
        ],
        recovery={"hangTimeout": "12s"},
        volumes=[],
        queue=QUEUE,
        priorityClassName=LOW,
    )


def saved_by(run: TrainingRun, attempt: int) -> list[int]:
    """Steps that an attempt has committed, in order."""
    manifests = (run.folder / f"a{attempt}").glob("step-*/manifest.json")
    return sorted(int(json.loads(path.read_text())["step"]) for path in manifests)
