"""The menu: every fault at every moment, and how a run has to come out of it.

``faults.page`` makes docs/faults.md from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Phase(StrEnum):
    """Where in the life of a run."""

    LAUNCH = "launch"
    BARRIER = "barrier"
    TRAINING = "training"
    SAVE = "save"
    RESTORE = "restore"
    STOP = "stop"


class Fault(StrEnum):
    """What goes wrong, on rank 1 or its node where it has a place."""

    SEGFAULT = "segfault"
    ABORT = "abort"
    ERROR = "error"
    EXIT_137 = "exit-137"
    EXIT_93 = "exit-93"
    KILL = "kill"
    SIGSTOP = "sigstop"
    NAN = "nan"
    FULL_DISK = "full-disk"
    TORN_SAVE = "torn-save"
    NODE_DEATH = "node-death"
    NODE_FREEZE = "node-freeze"
    CUT_OPERATOR = "cut-operator"
    CUT_PEERS = "cut-peers"
    API_SERVER = "api-server"
    OPERATOR_KILL = "operator-kill"
    MISTAKE = "mistake"
    PREEMPTION = "preemption"
    PREEMPTION_KILL = "preemption-kill"


PHASES = {
    Phase.LAUNCH: "Pods exist, no worker has reported; for what breaks the program: before it meets its peers.",
    Phase.BARRIER: "Two of three workers are at the barrier, one of which is hit.",
    Phase.TRAINING: "After step 24; steps 10 and 20 are saved.",
    Phase.SAVE: "In the save of step 20, before the rank hit has written its shard.",
    Phase.RESTORE: "An earlier failure ended attempt 1; attempt 2 is about to load step 20.",
    Phase.STOP: "The run is being suspended and all ranks are in the save that was asked for. It is resumed later.",
}
FAULTS = {
    Fault.SEGFAULT: "The program reads address 0.",
    Fault.ABORT: "The program calls abort().",
    Fault.ERROR: "The program ends with an exception, exit code 1.",
    Fault.EXIT_137: "The program ends with code 137, as what a shell passes on.",
    Fault.EXIT_93: "The program ends with code 93: do not start me again.",
    Fault.KILL: "SIGKILL from outside; at the barrier the worker gets it.",
    Fault.SIGSTOP: "SIGSTOP from outside; at the barrier the worker gets it.",
    Fault.NAN: "All that one rank has learnt becomes NaN.",
    Fault.FULL_DISK: "The file system of the checkpoints is full, until space is made.",
    Fault.TORN_SAVE: "A shard of the newest checkpoint is cut short, and the rank is killed.",
    Fault.NODE_DEATH: "The node loses power.",
    Fault.NODE_FREEZE: "Every process of the node and its network stop, and go on after the gang has moved on.",
    Fault.CUT_OPERATOR: "The node cannot reach the operator for a while.",
    Fault.CUT_PEERS: "The node cannot reach its peers, until the gang has given up.",
    Fault.API_SERVER: "kill -9 of the API server, which is away for 5 s.",
    Fault.OPERATOR_KILL: "kill -9 of the operator.",
    Fault.MISTAKE: "The program fails on the same batch every time.",
    Fault.PREEMPTION: "A run of a higher class comes and needs two of the four nodes.",
    Fault.PREEMPTION_KILL: "The same, and kill -9 of the operator once it has given notice.",
}
PREEMPTIONS = frozenset({Fault.PREEMPTION, Fault.PREEMPTION_KILL})
INCLUDED = frozenset({Fault.PREEMPTION})
"""Not in the short menu, where something else of it does all that these do and more."""
DISRUPTIONS = frozenset(
    {
        Fault.NODE_DEATH,
        Fault.NODE_FREEZE,
        Fault.CUT_OPERATOR,
        Fault.API_SERVER,
        Fault.OPERATOR_KILL,
        Fault.PREEMPTION,
        Fault.PREEMPTION_KILL,
    }
)
"""Nobody's program is to blame: never charged."""


@dataclass(frozen=True)
class Dish:
    """One fault at one moment.

    ``causes``: what the attempt that was hit may have ended with; empty: no attempt ends because of it. ``ends``:
    the reason of the condition Succeeded. ``words``: what its message has to say. ``save``: what may become of the save
    that was asked for before the stop. ``or_unharmed``: it may also go well, where the gang is released just before or
    after it is noticed that a worker says nothing any more. ``covering``: in the short menu.
    """

    fault: Fault
    phase: Phase
    causes: tuple[str, ...] = ()
    ends: str = "AllRanksSucceeded"
    words: tuple[str, ...] = ()
    save: tuple[str, ...] = ()
    or_unharmed: bool = False
    covering: bool = False

    @property
    def name(self) -> str:
        return f"{self.fault.value}-{self.phase.value}"


F, P = Fault, Phase
APPLICATION = ("Application",)
LOST = ("NodeLost",)
SENT_AWAY = ("Preempted",)
FAILED, SAVED = ("Failed",), ("Saved",)
GAVE_UP = ("Application", "Hang")
"""Whoever notices first: a peer, or the operator."""
stopped_by_program = partial(Dish, causes=("Deliberate",), ends="StoppedByProgram", words=("asked not to be started",))

MENU: tuple[Dish, ...] = (
    Dish(F.SEGFAULT, P.LAUNCH, APPLICATION, covering=True),
    Dish(F.SEGFAULT, P.TRAINING, APPLICATION),
    Dish(F.SEGFAULT, P.SAVE, APPLICATION),
    Dish(F.SEGFAULT, P.RESTORE, APPLICATION),
    Dish(F.SEGFAULT, P.STOP, save=FAILED),
    Dish(F.ABORT, P.LAUNCH, APPLICATION),
    Dish(F.ABORT, P.TRAINING, APPLICATION),
    Dish(F.ABORT, P.SAVE, APPLICATION),
    Dish(F.ABORT, P.RESTORE, APPLICATION, covering=True),
    Dish(F.ABORT, P.STOP, save=FAILED),
    Dish(F.ERROR, P.LAUNCH, APPLICATION),
    Dish(F.ERROR, P.TRAINING, APPLICATION),
    Dish(F.ERROR, P.SAVE, APPLICATION),
    Dish(F.ERROR, P.RESTORE, APPLICATION),
    Dish(F.ERROR, P.STOP, save=FAILED, covering=True),
    Dish(F.EXIT_137, P.LAUNCH, APPLICATION),
    Dish(F.EXIT_137, P.TRAINING, APPLICATION),
    Dish(F.EXIT_137, P.SAVE, APPLICATION, covering=True),
    Dish(F.EXIT_137, P.RESTORE, APPLICATION),
    Dish(F.EXIT_137, P.STOP, save=FAILED),
    stopped_by_program(F.EXIT_93, P.LAUNCH),
    stopped_by_program(F.EXIT_93, P.TRAINING, covering=True),
    stopped_by_program(F.EXIT_93, P.SAVE),
    stopped_by_program(F.EXIT_93, P.RESTORE),
    Dish(F.EXIT_93, P.STOP, save=FAILED),
    Dish(F.KILL, P.LAUNCH, APPLICATION),
    Dish(F.KILL, P.BARRIER),
    Dish(F.KILL, P.TRAINING, APPLICATION),
    Dish(F.KILL, P.SAVE, APPLICATION, covering=True),
    Dish(F.KILL, P.RESTORE, APPLICATION),
    Dish(F.KILL, P.STOP, save=FAILED),
    Dish(F.SIGSTOP, P.LAUNCH, APPLICATION),  # nothing is called a hang before two steps were seen
    Dish(F.SIGSTOP, P.BARRIER, LOST, or_unharmed=True),
    Dish(F.SIGSTOP, P.TRAINING, ("Hang",), covering=True),
    Dish(F.SIGSTOP, P.SAVE, ("Hang",)),
    Dish(F.SIGSTOP, P.RESTORE, GAVE_UP),
    Dish(F.SIGSTOP, P.STOP, save=("Expired", *FAILED)),
    Dish(F.NAN, P.LAUNCH, ("NaN",)),
    Dish(F.NAN, P.TRAINING, ("NaN",)),
    Dish(F.NAN, P.SAVE, ("NaN",), covering=True),
    Dish(F.NAN, P.RESTORE, ("NaN",)),
    Dish(F.NAN, P.STOP, ("NaN",), save=SAVED),
    Dish(F.FULL_DISK, P.LAUNCH),
    Dish(F.FULL_DISK, P.BARRIER),
    Dish(F.FULL_DISK, P.TRAINING, ("Storage",)),
    Dish(F.FULL_DISK, P.SAVE, ("Storage",), covering=True),
    Dish(F.FULL_DISK, P.RESTORE, ("Storage",)),
    Dish(F.FULL_DISK, P.STOP, save=FAILED),
    Dish(F.TORN_SAVE, P.TRAINING, APPLICATION),
    Dish(F.TORN_SAVE, P.SAVE, APPLICATION, covering=True),
    Dish(F.TORN_SAVE, P.RESTORE, APPLICATION),
    Dish(F.TORN_SAVE, P.STOP, save=SAVED),
    Dish(F.NODE_DEATH, P.LAUNCH),
    Dish(F.NODE_DEATH, P.BARRIER, LOST, or_unharmed=True, covering=True),
    Dish(F.NODE_DEATH, P.TRAINING, LOST),
    Dish(F.NODE_DEATH, P.SAVE, LOST),
    Dish(F.NODE_DEATH, P.RESTORE, LOST),
    Dish(F.NODE_DEATH, P.STOP, save=FAILED),
    Dish(F.NODE_FREEZE, P.LAUNCH),
    Dish(F.NODE_FREEZE, P.BARRIER, LOST, or_unharmed=True),
    Dish(F.NODE_FREEZE, P.TRAINING, LOST),
    Dish(F.NODE_FREEZE, P.SAVE, LOST, covering=True),
    Dish(F.NODE_FREEZE, P.RESTORE, LOST),
    Dish(F.NODE_FREEZE, P.STOP, save=FAILED),
    Dish(F.CUT_OPERATOR, P.LAUNCH),
    Dish(F.CUT_OPERATOR, P.BARRIER, LOST, or_unharmed=True),
    Dish(F.CUT_OPERATOR, P.TRAINING, covering=True),
    Dish(F.CUT_OPERATOR, P.SAVE),
    Dish(F.CUT_OPERATOR, P.RESTORE),
    Dish(F.CUT_OPERATOR, P.STOP, save=(*SAVED, *FAILED)),
    Dish(F.CUT_PEERS, P.LAUNCH),
    Dish(F.CUT_PEERS, P.BARRIER),
    Dish(F.CUT_PEERS, P.TRAINING, GAVE_UP, covering=True),
    Dish(F.CUT_PEERS, P.SAVE, GAVE_UP),
    Dish(F.CUT_PEERS, P.RESTORE, GAVE_UP),
    Dish(F.CUT_PEERS, P.STOP, save=("Expired", *FAILED)),
    Dish(F.API_SERVER, P.LAUNCH),
    Dish(F.API_SERVER, P.BARRIER),
    Dish(F.API_SERVER, P.TRAINING, covering=True),
    Dish(F.API_SERVER, P.SAVE),
    Dish(F.API_SERVER, P.RESTORE),
    Dish(F.API_SERVER, P.STOP, save=SAVED),
    Dish(F.OPERATOR_KILL, P.LAUNCH, covering=True),
    Dish(F.OPERATOR_KILL, P.BARRIER),
    Dish(F.OPERATOR_KILL, P.TRAINING),
    Dish(F.OPERATOR_KILL, P.SAVE),
    Dish(F.OPERATOR_KILL, P.RESTORE),
    Dish(F.OPERATOR_KILL, P.STOP, save=SAVED),
    Dish(
        F.MISTAKE,
        P.TRAINING,
        APPLICATION,
        ends="Deterministic",
        words=("the wrong shape", "failed like this 3 times", "lockstep logs", "correct it"),
        covering=True,
    ),
    Dish(F.PREEMPTION, P.LAUNCH),
    Dish(F.PREEMPTION, P.BARRIER),
    Dish(F.PREEMPTION, P.TRAINING, SENT_AWAY, save=SAVED),
    Dish(F.PREEMPTION, P.SAVE, SENT_AWAY, save=SAVED),
    Dish(F.PREEMPTION, P.RESTORE, SENT_AWAY),
    Dish(F.PREEMPTION, P.STOP, save=SAVED),
    Dish(F.PREEMPTION_KILL, P.LAUNCH),
    Dish(F.PREEMPTION_KILL, P.BARRIER),
    Dish(F.PREEMPTION_KILL, P.TRAINING, SENT_AWAY, save=SAVED, covering=True),
    Dish(F.PREEMPTION_KILL, P.SAVE, SENT_AWAY, save=SAVED),
    Dish(F.PREEMPTION_KILL, P.RESTORE, SENT_AWAY),
)

NOT_SERVED: dict[tuple[Fault, Phase], str] = {
    **{
        (fault, Phase.BARRIER): "no program runs there"
        for fault in (F.SEGFAULT, F.ABORT, F.ERROR, F.EXIT_137, F.EXIT_93, F.NAN, F.MISTAKE)
    },
    (F.PREEMPTION_KILL, P.STOP): "who stops already gets no notice",
    (F.TORN_SAVE, P.LAUNCH): "nothing is saved yet",
    (F.TORN_SAVE, P.BARRIER): "as in restore: it is read before the start",
    **{
        (F.MISTAKE, phase): "it is about what repeats: training stands for all"
        for phase in (P.LAUNCH, P.SAVE, P.RESTORE, P.STOP)
    },
}
"""Combinations that cannot be, and why."""
