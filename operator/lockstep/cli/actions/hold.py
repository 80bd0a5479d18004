"""`lockstep hold`, `release` and `requeue`: keep pending runs from admission, and send admitted ones back to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from lockstep.api.base import names
from lockstep.cli import output, runs
from lockstep.cli.actions import change
from lockstep.cli.client import Cluster, Json, resource_path, retried, runs_path
from lockstep.cli.errors import ApiServerError, CliError, if_forbidden
from lockstep.cli.options import Chosen
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import current_phase, queue_of

_WAITING = (Phase.PENDING, Phase.SUSPENDED)


def hold(cluster: Cluster, chosen: Chosen, *, by_queue: bool) -> None:
    """Keep pending runs from being admitted. ``by_queue``: as an administrator, whatever their users say."""
    one = _hold_by_queue if by_queue else _hold
    change.each(cluster, chosen, lambda name: one(cluster, name, chosen.output))


def release(cluster: Cluster, chosen: Chosen, *, by_queue: bool) -> None:
    """Let held runs be admitted again."""
    one = _release_by_queue if by_queue else _release
    change.each(cluster, chosen, lambda name: one(cluster, name, chosen.output))


def requeue(cluster: Cluster, chosen: Chosen) -> None:
    """Have runs that hold nodes save, give them back and requeue."""
    change.each(cluster, chosen, lambda name: _requeue(cluster, name, chosen.output))


def _hold(cluster: Cluster, name: str, form: str) -> None:
    def patch(run: RunView, raw: Json) -> Json | None:
        phase = current_phase(run)
        if phase not in _WAITING:
            raise CliError(
                f"{name} does not wait, it is {run.status.state}: hold would stop it",
                f"lockstep suspend {name} has it save, stop and wait; lockstep requeue {name} lets it queue again",
            )
        if phase is Phase.SUSPENDED:
            output.note(f"{name} is held already.")
            return None
        # Were it admitted meanwhile, the version would differ: a gang is not stopped by mistake.
        return {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "spec": {"suspend": True}}

    _change(cluster, name, form, "held", patch)


def _release(cluster: Cluster, name: str, form: str) -> None:
    def patch(run: RunView, raw: Json) -> Json | None:
        if run.spec is not None and run.spec.suspend:
            return {"spec": {"suspend": False}}
        if run.status.queue.reason == WaitReason.HELD_BY_ADMINISTRATOR:
            raise CliError(
                f"an administrator holds {name} back: {run.status.queue.message}",
                f"ask for lockstep release {name} -n {run.namespace} --queue",
            )
        output.note(f"{name} is not held.")
        return None

    _change(cluster, name, form, "released", patch)


def _requeue(cluster: Cluster, name: str, form: str) -> None:
    def patch(run: RunView, raw: Json) -> Json | None:
        if current_phase(run) not in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
            raise CliError(f"{name} has no nodes to give back, it is {run.status.state}", f"lockstep explain {name}")
        return {"metadata": {"annotations": {names.ANNOTATION_REQUEUE_REQUEST: uuid.uuid4().hex[:16]}}}

    _change(cluster, name, form, "asked to give its nodes back and queue again", patch)


def _hold_by_queue(cluster: Cluster, name: str, form: str) -> None:
    key, queue = _key_and_queue(cluster, name)
    _change_held(cluster, queue, form, lambda held: None if key in held else [*held, key], f"holds {key}")


def _release_by_queue(cluster: Cluster, name: str, form: str) -> None:
    key, queue = _key_and_queue(cluster, name)
    without = f"holds {key} no longer"
    _change_held(cluster, queue, form, lambda held: [k for k in held if k != key] if key in held else None, without)


def _key_and_queue(cluster: Cluster, name: str) -> tuple[str, str]:
    run = runs.view(runs.fetch(cluster, name))
    return run.key, queue_of(run)


def _change_held(
    cluster: Cluster, queue: str, form: str, changed: Callable[[list[str]], list[str] | None], done: str
) -> None:
    """Write ``heldRuns`` of a queue; another who writes it at the same time loses nothing."""
    path = resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, queue)

    def write() -> Json | None:
        raw = cluster.get(path)
        held = changed(list(raw["spec"].get("heldRuns") or ()) if raw.get("spec") else [])
        if held is None:
            output.note(f"queue {queue} {done} already.")
            return None
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        return cluster.merge_patch(path, {"metadata": version, "spec": {"heldRuns": held}})

    try:
        with if_forbidden("only who may change queues may do so; without --queue you hold your own run"):
            raw = retried(write)
    except ApiServerError as error:
        if error.status == 404 and error.name:
            raise CliError(f"there is no TrainingQueue {queue}", "create it first; its spec may be empty") from error
        raise
    if raw is not None:
        output.print_done(raw, form, done)


def _change(cluster: Cluster, name: str, form: str, done: str, patch: Callable[[RunView, Json], Json | None]) -> None:
    def write() -> Json | None:
        raw = runs.fetch(cluster, name)
        run = runs.view(raw)
        body = patch(run, raw) if not runs.has_finished(run) else None
        return cluster.merge_patch(runs_path(cluster.namespace, name), body) if body is not None else None

    raw = retried(write)
    if raw is not None:
        output.print_done(raw, form, done)
