"""What a run without workers cannot have: everything that only the worker does. Each refusal names the way out."""

from collections.abc import Iterator

from lockstep.api.checkpoint_spec import CadenceSpec, CheckpointSpec, StartSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.pods.launchers import WITHOUT_WORKER

_WAY_OUT = "leave it out, or write worker: Enabled"


def plain_problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    """Yield what does not go with ``worker: Disabled``; nothing for a run with workers."""
    if spec.worker == "Enabled":
        return
    if spec.network != "Host":
        yield Problem(
            "spec.network", "pods without a worker are told their peers' node addresses: write Host, or worker: Enabled"
        )
    for field, asked, why in (
        (
            "spec.launcher.type",
            spec.launcher.type not in WITHOUT_WORKER,
            "the worker starts its processes on the nodes",
        ),
        ("spec.launcher.steps", spec.launcher.steps, "the worker carries steps out"),
        ("spec.spareNodes", spec.spare_nodes > 0, "spares wait at the worker's barrier"),
        ("spec.elastic", spec.elastic is not None, "a gang changes its size at the worker's barrier"),
        ("spec.preflight.warmUp", spec.preflight.warm_up != "Disabled", "the worker warms up at its barrier"),
        ("spec.preflight.minDisk", spec.preflight.min_disk is not None, "the worker looks at the disks"),
        ("spec.preflight.startJitter", spec.preflight.start_jitter is not None, "the worker spreads the starts"),
        ("spec.progress.pattern", spec.progress.pattern is not None, "the worker reads the log"),
        ("spec.recovery.debugHold", spec.recovery.debug_hold is not None, "the worker keeps pods for a look inside"),
    ):
        if asked:
            yield Problem(field, f"{why}; {_WAY_OUT}")
    for index, rule in enumerate(spec.recovery.rules):
        if rule.log_pattern is not None:
            yield Problem(f"spec.recovery.rules[{index}].logPattern", f"the worker reads the log; {_WAY_OUT}")
        if rule.action == "RollBack":
            yield Problem(
                f"spec.recovery.rules[{index}].action",
                "the worker knows the checkpoints; write RestartInPlace, or worker: Enabled",
            )
    if spec.checkpoint is not None:
        yield from _checkpoint(spec.checkpoint)


def _checkpoint(checkpoint: CheckpointSpec) -> Iterator[Problem]:
    """The block mounts its tiers and no more."""
    for name, asked, why in (
        ("archive", checkpoint.archive is not None, "only checkpoints that a worker has judged are copied"),
        ("retention", checkpoint.retention is not None, "only checkpoints that a worker has judged are removed"),
        ("cadence", checkpoint.cadence != CadenceSpec(), "the worker tells the program when to save"),
        ("signal", checkpoint.signal is not None, "the worker sends it"),
        ("resumeBy", checkpoint.resume_by is not None, "the worker says what to resume from"),
        ("layout", checkpoint.layout != "PerAttempt", "the fence around one directory is the worker's"),
        ("start", checkpoint.start != StartSpec(), "the worker says what to resume from"),
    ):
        if asked:
            yield Problem(f"spec.checkpoint.{name}", f"{why}; {_WAY_OUT}")
