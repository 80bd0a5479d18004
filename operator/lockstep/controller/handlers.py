"""Where the operator hears of its own kinds: kopf calls one of these handlers for each event. Newcomers: start here.

event -> store -> key. A handler hands the object to the store, the store compares it with what it knows and puts the
keys of what is to be reconciled into the work queue, from where ``reconcile`` takes them. Nothing is decided here. A
handler that fails has lost one event, which the next list makes good (``own_kinds``). Answers to our own writes go to
the store at once, so what a watch repeats of them need not come by here: ``kopf_session``, which kopf sends by, drops
it. Pods, nodes and other people's kinds come by ``informer``.

Of kopf only ``on.event`` is used: no finalizer, no annotation, no Event, no state of its own on anybody's object.
"""

import logging
from contextlib import AbstractContextManager
from typing import Any

import kopf

from lockstep.api.base import names
from lockstep.controller.kube.kopf_storage import NoDiffBase, NoProgress
from lockstep.controller.store.own_kinds import RETRY_AFTER, OwnKinds

log = logging.getLogger("lockstep.own_kinds")
registry = kopf.OperatorRegistry()


@kopf.on.event(names.GROUP, names.VERSION, names.RUNS, registry=registry)
async def training_run(type: str | None, event: Any, memo: OwnKinds, **_: Any) -> None:  # noqa: A002 - kopf's name
    """A TrainingRun was made, changed or deleted."""
    run = event["object"]
    with _by_itself(memo, names.RUNS, run):
        if type == "DELETED":
            memo.store.runs.hear_gone(run["metadata"]["uid"], int(run["metadata"]["resourceVersion"]))
        else:
            memo.store.runs.apply(run)


@kopf.on.event(names.GROUP, names.VERSION, names.RUN_SETS, registry=registry)
async def training_run_set(type: str | None, event: Any, memo: OwnKinds, **_: Any) -> None:  # noqa: A002
    """A TrainingRunSet was made, changed or deleted."""
    run_set = event["object"]
    with _by_itself(memo, names.RUN_SETS, run_set):
        if type == "DELETED":
            memo.store.run_sets.remove(run_set["metadata"]["uid"])
        else:
            memo.store.run_sets.apply(run_set)


@kopf.on.event(names.GROUP, names.VERSION, names.QUEUES, registry=registry)
async def training_queue(type: str | None, event: Any, memo: OwnKinds, **_: Any) -> None:  # noqa: A002
    """A TrainingQueue was made, changed or deleted."""
    queue = event["object"]
    with _by_itself(memo, names.QUEUES, queue):
        if type == "DELETED":
            memo.store.queues.remove(queue)
        else:
            memo.store.queues.apply(queue)


@kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=RETRY_AFTER)
async def login(memo: OwnKinds, **_: Any) -> kopf.AiohttpSession:
    """kopf begins, or was refused."""
    return await memo.log_in()


@kopf.on.startup(registry=registry)
async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Before kopf asks for anything: it writes nothing, and gives up nothing."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.watching.inactivity_timeout = 70  # the server sends a bookmark about once a minute
    settings.watching.connect_timeout = 10
    settings.queueing.idle_timeout = 0.5  # of the task that each object has that is heard of
    settings.queueing.error_delays = (1, 2, 5, 10)
    settings.networking.enforce_retry_after = True
    settings.process.ultimate_exiting_timeout = None  # kopf may begin anew while the process goes on


@kopf.on.cleanup(registry=registry)
async def cleanup(**_: Any) -> None:
    """kopf has ended. There is nothing of it on any object, and the store may go on with what it knows."""
    log.info("our own kinds are no longer watched")


def _by_itself(memo: OwnKinds, kind: str, found: Any) -> AbstractContextManager[None]:
    """What goes wrong with one object is told, and costs that object alone."""
    meta = found.get("metadata") or {}
    which = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    return memo.store.left_out.if_it_fails(kind, which, meta.get("resourceVersion"))
