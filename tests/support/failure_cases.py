"""Causes of failures, and what is known of the run that failed."""

from dataclasses import replace

from lockstep.api.recovery_spec import RecoveryRule, RecoverySpec
from lockstep.api.recovery_status import FailureRoot, FirstFailure
from lockstep.core.failures.actions import Case, Verb
from lockstep.core.failures.causes import Cause, Evidence
from lockstep.core.failures.signs import Reading
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import AttemptCause

NOW = 1_000_000.0


def cause(kind: AttemptCause, root: str = "some root", *, node: str = "n1", slot: int = 1, **more: object) -> Cause:
    reading_fields = {"symptom", "bare", "by_nature", "weak", "waits", "on_node", "passing", "link"}
    traits = {name: value for name, value in more.items() if name in reading_fields}
    rest = {"exited": True} | {name: value for name, value in more.items() if name not in reading_fields}
    tied, slots = rest.pop("tied", ()), rest.pop("slots", ())
    evidence = Evidence(kind.value, slot, node, NOW, "what was seen", root, tied=tied, slots=slots)  # type: ignore[arg-type]
    return Cause(evidence, Reading(kind, root, **traits), **rest)  # type: ignore[arg-type]


def case(**changes: object) -> Case:
    known = Case(
        now=NOW,
        recovery=RecoverySpec(),
        nodes=4,
        run="llama",
        step=120,
        resumed=("shared", Save(100, 1)),
        valid_steps=(110, 100, 90),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def failed_before(*, node: str = "n1", ago: float = 3600.0) -> tuple[FirstFailure, ...]:
    return (FirstFailure(node=node, time=NOW - ago),)


def alike(*nodes: str, step: int = 120, root: str = "some root") -> tuple[FailureRoot, ...]:
    return (FailureRoot(root=root, count=len(nodes), nodes=nodes, steps=(step,) * len(nodes)),)


def rules(*entries: dict[str, object]) -> RecoverySpec:
    return RecoverySpec(rules=tuple(RecoveryRule.model_validate(entry) for entry in entries))


IN_PLACE, REPLACE, STOP, BACK = Verb.RESTART_IN_PLACE, Verb.REPLACE_NODES, Verb.STOP, Verb.ROLL_BACK

LINK = cause(AttemptCause.UNKNOWN, link=True, waits=True, slots=(0, 1))
