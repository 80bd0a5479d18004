"""`lockstep hold`, `release` and `requeue`: keep pending runs from admission, and send admitted ones back to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from lockstep.api.base import names
from lockstep.cli import arrays, output, runs
from lockstep.cli.actions import change, change_array
from lockstep.cli.client import Cluster, Json, resource_path, retried, runs_path
from lockstep.cli.errors import ApiServerError, CliError, if_forbidden
from lockstep.cli.options import Chosen
from lockstep.core.arrays.members import holds_nodes
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.reasons import ConditionReason, WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import current_phase, queue_of

_WAITING = (Phase.PENDING, Phase.SUSPENDED)


def hold(cluster: Cluster, chosen: Chosen, *, by_queue: bool) -> None:
    """Keep pending runs from being admitted. ``by_queue``: as an administrator, whatever their users say."""
    if by_queue:
        _change_held(cluster, chosen, lambda held, key: None if key in held else [*held, key], "holds {key}")
    else:
        _change(cluster, chosen, _suspended, "held", partial(_suspended_set, cluster))


def release(cluster: Cluster, chosen: Chosen, *, by_queue: bool) -> None:
    """Let held runs be admitted again."""
    if by_queue:
        _change_held(cluster, chosen, _without, "holds {key} no longer")
    else:
        _change(cluster, chosen, partial(_released, cluster), "released", lambda view: {"suspend": False})


def requeue(cluster: Cluster, chosen: Chosen) -> None:
    """Have runs that hold nodes save, give them back and requeue."""
    _change(cluster, chosen, _requeued, "asked to give its nodes back and queue again")


def _suspended(run: RunView, raw: Json) -> Json | None:
    phase = current_phase(run)
    if phase not in _WAITING:
        raise CliError(
            f"{run.name} does not wait, it is {run.status.state}: hold would stop it",
            f"lockstep suspend {run.name} has it save, stop and wait; lockstep requeue {run.name} lets it queue again",
        )
    if phase is Phase.SUSPENDED:
        word = "suspended" if run.status.reason == ConditionReason.SUSPENDED else "held"
        output.note(f"{run.name} is {word} already.")
        return None
    # Were it admitted meanwhile, the version would differ: a gang is not stopped by mistake.
    return {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "spec": {"suspend": True}}


def _released(cluster: Cluster, run: RunView, raw: Json) -> Json | None:
    held = runs.held_by_set(cluster, raw, "release")
    if run.spec is not None and run.spec.suspend:
        if held is not None:
            output.note(f"{held}; {held.remedy}")
        return {"spec": {"suspend": False}}
    if run.status.queue.reason == WaitReason.HELD_BY_ADMINISTRATOR:
        raise CliError(
            f"an administrator holds {run.name} back: {run.status.queue.message}",
            f"ask for lockstep release {run.name} -n {run.namespace} --queue",
        )
    if held is not None:
        raise held
    output.note(f"{run.name} is not held.")
    return None


def _suspended_set(cluster: Cluster, view: RunSetView) -> Json:
    if view.status.counts.running or any(map(holds_nodes, arrays.members(cluster, view))):
        raise CliError(
            f"runs of {view.name} have begun: hold would stop them",
            f"lockstep suspend {view.name} has them save and stop; spec.maxRunning: 0 lets them go on alone",
        )
    return {"suspend": True}


def _requeued(run: RunView, raw: Json) -> Json | None:
    if current_phase(run) not in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
        why = f"{run.name} has no nodes to give back, it is {run.status.state}"
        raise CliError(why, f"lockstep explain {run.name}")
    return {"metadata": {"annotations": {names.ANNOTATION_REQUEUE_REQUEST: uuid.uuid4().hex[:16]}}}


def _without(held: list[str], key: str) -> list[str] | None:
    return [other for other in held if other != key] if key in held else None


def _change(
    cluster: Cluster,
    chosen: Chosen,
    patch: Callable[[RunView, Json], Json | None],
    done: str,
    patch_set: Callable[[RunSetView], Json] | None = None,
) -> None:
    """``patch`` of a run, or ``patch_set`` of the spec of an array of that name where it takes arrays."""

    def act(name: str) -> None:
        def write() -> Json | None:
            try:
                raw = runs.fetch(cluster, name)
            except CliError:
                found = arrays.fetch_if_allowed(cluster, name) if patch_set is not None else None
                if found is None or patch_set is None:
                    raise
                change_array.change_set(cluster, found, patch_set(parse_run_set(found)), done, chosen.output)
                return None
            run = runs.view(raw)
            body = patch(run, raw) if not runs.has_finished(run) else None
            return cluster.merge_patch(runs_path(cluster.namespace, name), body) if body is not None else None

        raw = retried(write)
        if raw is not None:
            output.print_done(raw, chosen.output, done)

    change.each(cluster, chosen, act)


def _change_held(
    cluster: Cluster, chosen: Chosen, changed: Callable[[list[str], str], list[str] | None], done: str
) -> None:
    """Write ``heldRuns`` of the queues of runs; another who writes it at the same time loses nothing."""

    def act(name: str) -> None:
        run = runs.view(runs.fetch(cluster, name))
        queue, what = queue_of(run), done.format(key=run.key)
        path = resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, queue)

        def write() -> Json | None:
            raw = cluster.get(path)
            held = changed(list(raw["spec"].get("heldRuns") or ()) if raw.get("spec") else [], run.key)
            if held is None:
                output.note(f"queue {queue} {what} already.")
                return None
            version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
            return cluster.merge_patch(path, {"metadata": version, "spec": {"heldRuns": held}})

        try:
            with if_forbidden("only who may change queues may do so; without --queue you hold your own run"):
                raw = retried(write)
        except ApiServerError as error:
            if error.status == 404 and error.name:
                raise CliError(
                    f"there is no TrainingQueue {queue}", "create it first; its spec may be empty"
                ) from error
            raise
        if raw is not None:
            output.print_done(raw, chosen.output, what)

    change.each(cluster, chosen, act)
