"""What is done about failures, and when to give up: the `recovery` and `preflight` blocks of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lockstep.api.base.schema import Duration, IntOrString, MapList, Rule, SetList, Size, SpecModel, TunableDuration

RuleAction = Literal["Stop", "RestartInPlace", "ReplaceNode", "RollBack"]
OnCordon = Literal["Ignore", "Migrate"]
OnNaN = Literal["RollBack", "Stop", "Ignore"]
OnLossSpike = Literal["RollBack", "Report", "Ignore"]
OnStraggler = Literal["Replace", "Report", "Ignore"]
WarmUp = Literal["Disabled", "Ring", "Pairwise"]
MAX_RULES = 16


class RecoveryRule(SpecModel):
    """What to do about one kind of failure. The first rule that fits a rank's end decides."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Shown wherever the rule decided."""
    exit_codes: Annotated[tuple[int, ...], SetList(), Field(max_length=32)] = ()
    """Exit codes of the process; 128 plus the signal when it was killed by one."""
    log_pattern: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """A regular expression (Python's) that a line of the rank's stderr matches. The worker compiles it: what is wrong
    with it beyond brackets and repeats is told as the sign Watch:Problem."""
    node_condition: Annotated[str, Field(min_length=1, max_length=316)] | None = None
    """A condition that is True on the rank's node, e.g. GpuUnhealthy."""
    action: RuleAction
    """Stop: the run fails. RestartInPlace: all ranks again where they are. ReplaceNode: another node for this
    rank. RollBack: from one valid checkpoint earlier."""
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None
    """After so many times the run fails; no limit of its own when left out."""

    cross_field_rules: ClassVar = (
        Rule(
            "has(self.exitCodes) && size(self.exitCodes) > 0 || has(self.logPattern) || has(self.nodeCondition)",
            "fits nothing: name exitCodes, a logPattern or a nodeCondition",
        ),
    )


class RecoverySpec(SpecModel):
    """What is done about failures, and when to give up."""

    no_progress_limit: Annotated[
        int | str,
        IntOrString(),
        Rule(
            "type(self) == int ? self >= 1 : self == 'Adaptive'",
            "write Adaptive, or a number of restarts without progress, e.g. 3",
        ),
    ] = "Adaptive"
    """Restarts in a row without a step beyond the best one, after which the run fails. Lost nodes don't
    count."""
    max_restarts: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Absolute cap on restarts of any cause; none when left out."""
    hang_timeout: TunableDuration = "Adaptive"
    """How long no step may be reported before the gang counts as hung. Adaptive: five times the longest of the
    last hundred, at least a minute. Never judged before two steps were seen."""
    on_cordon: OnCordon = "Ignore"
    """Migrate: a cordoned node is left after a save. Ignore: a cordon only keeps new work away."""
    on_nan: OnNaN = Field(default="RollBack", alias="onNaN")
    """What a loss that is no number does."""
    on_loss_spike: OnLossSpike = "Report"
    """What a sudden jump of the loss does."""
    on_straggler: OnStraggler = "Report"
    """What a rank that is persistently slower than its peers does. Replace: only when it pays."""
    rules: Annotated[tuple[RecoveryRule, ...], MapList("name"), Field(max_length=MAX_RULES)] = ()
    """Your own rules, tried before the built-in ones."""
    debug_hold: Duration | None = None
    """After a failure that ends the run, keep pods and nodes so long for a look inside. The operator's maxDebugHold and
    the time limit bound it."""


class PreflightSpec(SpecModel):
    """What is checked before user code starts."""

    warm_up: WarmUp = "Disabled"
    """A small exchange between the nodes before every first start on a node: Ring, each with its neighbour;
    Pairwise, in rounds of changing pairs, which names the bad one. A node that fails it is swapped."""
    min_disk: Size | None = None
    """Space that must be free where local checkpoints go."""
    start_jitter: Duration | None = None
    """Ranks start spread over so long, to spare the storage."""
