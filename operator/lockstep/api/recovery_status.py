"""What status says of attempts, what ended them, and what is remembered of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lockstep.api.base.schema import MapList, StatusModel, Timestamp


class AttemptStatus(StatusModel):
    """One collective start of the ranks and how it ended."""

    number: int
    """The attempt."""
    started_at: Timestamp | None = None
    """When START was written."""
    admitted_at: Timestamp | None = None
    """When the gang had got the nodes that it held then; none: not known, or without workers."""
    first_step_at: Timestamp | None = None
    """When its start-up was over and its first step began; none: no step was heard of."""
    nodes: int = 0
    """Nodes that trained."""
    ended_at: Timestamp | None = None
    """When its end was decided."""
    cause: str = ""
    """One CamelCase word for what ended it."""
    message: str = ""
    """What happened, in a sentence."""
    rank: int | None = None
    """The rank that failed first."""
    node: str = ""
    """Its node."""
    exit_code: int | None = None
    """Its exit code; 128 plus the signal when it was killed by one."""
    script_exit_code: int | None = None
    """Of a batch job: the code that its script ended with, whichever rank failed first; none: it did not end by
    itself."""
    action: str = ""
    """What was done next."""
    resume_step: int | None = None
    """Step it resumed from; none: from step 0."""
    last_step: int | None = None
    """Highest step it reported."""
    charged: bool = False
    """Whether its end counted against the no-progress limit."""
    victims: str = ""
    """Ranks that ended because of it, as ranges; of very many the first, and how many more."""
    seen_at: Timestamp | None = None
    """When its end was seen; `endedAt` may lie before, for a hang or a silent node."""
    resume_tier: str = ""
    """Tier it resumed from."""
    steps_lost: int | None = None
    """Steps that have to be repeated because of its end."""
    stderr: Annotated[str, Field(max_length=1024)] = ""
    """The end of what that rank wrote to stderr: its pod and log may be gone by the time that somebody asks."""
    stacks: str = ""
    """ConfigMap with the stacks of its ranks, collected before a hang was ended."""


class Totals(StatusModel):
    """Counts over the whole life of the run."""

    attempts: int = 0
    """Collective starts."""
    restarts: int = 0
    """Attempts that a failure ended and another followed."""
    restarts_in_place: int = 0
    """Restarts that kept every pod."""
    pods_replaced: int = 0
    """Pods made anew on the same node."""
    nodes_replaced: int = 0
    """Slots that got another node."""


class ExcludedNode(StatusModel):
    """A node that recovery keeps the run off."""

    node: str
    """Its name."""
    reason: str
    """Why."""
    until: Timestamp | None = None
    """When it may be used again; none: not by itself."""
    since: Timestamp | None = None
    """When it was excluded."""
    condition: str = ""
    """The condition of the node that it was excluded for; it may be used again once that is gone."""


class SlotLosses(StatusModel):
    """Pods lost in one slot on one node; the node is given up when they repeat."""

    slot: int
    """The slot."""
    node: str
    """The node it was on."""
    count: int
    """Pods lost there."""
    time: Timestamp | None = None
    """When the last of them was lost; after a day they are forgotten."""


class FailureRoot(StatusModel):
    """Failures that look alike: the same cause at much the same place."""

    root: str
    """What they have in common, without rank, node or step."""
    count: int
    """How often."""
    steps: Annotated[tuple[int, ...], Field(max_length=8)] = ()
    """Last steps reported before them."""
    nodes: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Nodes whose rank failed first."""
    time: Timestamp | None = None
    """The last one."""


class FirstFailure(StatusModel):
    """A node whose rank failed first."""

    node: str
    """The node."""
    time: Timestamp
    """When."""
    cause: str = ""
    """Of what."""


class StragglerStatus(StatusModel):
    """A rank that is slower than its peers."""

    slot: int
    """Its slot."""
    percent: int
    """The pace of its fastest peers reached, in percent."""
    windows: int = 0
    """Minutes in a row in which it was that slow."""
    time: Timestamp | None = None
    """End of the last of them."""


class RuleUse(StatusModel):
    """How often a rule of `recovery.rules` decided."""

    name: str
    """The rule."""
    count: int
    """Times."""


class NodeRefusalsStatus(StatusModel):
    """Kubelets that would not take a pod of the run: UnexpectedAdmissionError, OutOfcpu, NodePorts and the like."""

    nodes: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Their nodes, the latest last."""
    message: str = ""
    """What the latest said."""
    waits: bool = False
    """Whether they are so many that the run waits for longer before it tries others."""
    generation: int = 0
    """Of the spec that they were asked to run."""


class RecoveryStatus(StatusModel):
    """Budgets and back-off."""

    roots: Annotated[tuple[FailureRoot, ...], Field(max_length=16)] = ()
    """Failures of the run by what they have in common, the latest last."""
    first_failures: Annotated[tuple[FirstFailure, ...], Field(max_length=32)] = ()
    """Nodes whose rank failed first within a day, the latest last."""
    rules_used: Annotated[tuple[RuleUse, ...], MapList("name"), Field(max_length=16)] = ()
    """How often each rule of the spec decided."""
    roll_backs: int = 0
    """Roll-backs without a valid checkpoint beyond them since."""
    diverged_attempt: int = 0
    """The attempt that was rolled back last; what it and those before it saved is not trusted."""
    diverged_step: int = 0
    """A valid checkpoint of a later attempt beyond this step ends the roll-back."""
    diverged_from: int = 0
    """The first step that is known to have gone wrong. Where nothing is left that may be gone back to, what was saved
    before it may be."""
    straggler: StragglerStatus | None = None
    """The slowest rank, while it stands out."""
    debug_until: Timestamp | None = None
    """Pods and nodes are kept until then for a look inside."""
    shrunk_at: Timestamp | None = None
    """When the gang last shrank."""
    renumbered_at: Timestamp | None = None
    """When a gang on its way to START last went over to another attempt, for which its workers get ready anew."""
    fenced_at: Timestamp | None = None
    """From then on no lost process of the last attempt writes any more; only with layout Shared."""
    warmed: str = ""
    """Hash of the assignment whose nodes have passed the warm-up."""

    slot_losses: Annotated[tuple[SlotLosses, ...], MapList("slot"), Field(max_length=16_384)] = ()
    """Slots that lost pods on the node they are on."""

    consecutive_no_progress: int = 0
    """Restarts in a row without a step beyond the best one."""
    best_step: int = 0
    """Highest step any attempt reached."""
    not_before: Timestamp | None = None
    """The next attempt starts no earlier."""
    excluded_nodes: Annotated[tuple[ExcludedNode, ...], MapList("node"), Field(max_length=64)] = ()
    """Nodes that recovery keeps the run off."""
    requeues: int = 0
    """Times in a row that the gang gave back its nodes and queued again, without having started in between."""
    refusals: NodeRefusalsStatus | None = None
    """Kubelets that would not take pods of the run, since all of them were last up."""
