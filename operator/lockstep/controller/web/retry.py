"""A new run goes on from one that has ended: read and created by the viewer's own token.

It has a name of its own, so nothing is deleted, and there is one request that counts: whatever dies before that leaves
nothing behind, and after it the new run. The name is the one that was confirmed, so asking twice makes one run.
"""

import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from lockstep.api.base import names
from lockstep.controller.kube.caller import CallerApi, Json
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.kube.pages import METADATA
from lockstep.controller.runtime.resources import CONFIG_MAPS, RUNS
from lockstep.controller.web import refusal
from lockstep.controller.web.access import Viewer
from lockstep.controller.web.refusal import RefusalError
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.present import code_maps, going_on
from lockstep.present.actions import Deed, open_to
from lockstep.present.going_on import Beginning, CannotGoOnError

log = logging.getLogger("lockstep.controller.web")

MOST_CODE = 4
"""ConfigMaps of code that one run mounts; ``--code`` makes one."""
MOST_DIGITS = 15
"""Of a step: what JavaScript's numbers hold."""


def beginning(step: int | None, fresh: bool) -> Beginning:
    """Raises RefusalError for both at once."""
    if fresh and step is not None:
        raise RefusalError(400, "a new run begins at a step, or fresh at step 0; name one of them")
    return Beginning(step, fresh)


def asked_about(query: Mapping[str, str]) -> Beginning:
    """Where the run begins of which it is asked what comes of it. Raises RefusalError."""
    step = query.get("step", "")
    if step and not (step.isascii() and step.isdigit() and len(step) <= MOST_DIGITS):
        raise RefusalError(400, f"step={step[:63]} is no step; write a number, or fresh=true")
    return beginning(int(step) if step else None, query.get("fresh") == "true")


def offer(run: RunView, name: str, now: float, begin: Beginning) -> dict[str, Any]:
    """What comes of it, and the ``name`` to ask for; empty where the words say why not. ``begins``: whether there may
    be a choice of where."""
    try:
        words = [*going_on.preview(run, name, now, begin)] if name else [_no_name(run)]
    except CannotGoOnError as error:
        name, words = "", _why_not(error)
    begins = run.spec is not None and run.spec.checkpoint is not None
    return {"action": Deed.RETRY, "words": words, "name": name, "begins": begins}


async def retry(
    api: CallerApi, viewer: Viewer, run: RunView, token: str, asked: str, free: str, now: float, begin: Beginning
) -> dict[str, Any]:
    """Create the run that was confirmed by its name, ``asked``; ``free`` is the next one. Raises RefusalError."""
    if not free:
        raise RefusalError(409, _no_name(run))
    if asked != free:
        raise _taken(run, asked)
    raw = await _as_it_is(api, run, token)
    found = parse_run(raw)
    if Deed.RETRY not in open_to(found):
        raise RefusalError(409, f"{run.key} has not ended, or its spec cannot be read")
    try:
        made = going_on.next_run(found, raw["metadata"], raw["spec"], asked, now, begin).manifest
    except CannotGoOnError as error:
        raise RefusalError(409, " ".join(_why_not(error))) from error
    made["metadata"]["annotations"][names.ANNOTATION_USER] = viewer.name
    try:
        created = await api.create(RUNS.path(run.namespace), made, token)
    except KubeError as error:
        if isinstance(error, ApiError) and error.reason == "AlreadyExists":
            raise _taken(run, asked) from error
        raise refusal.of_api(error, f"create {names.RUNS}", "edit", run.namespace) from error
    log.info("asked for on the page", extra={"run": run.key, "action": "retry", "viewer": viewer.name, "made": asked})
    left = [
        name
        for name in islice(code_maps.mounted_by(made), MOST_CODE)
        if not await _kept(api, made, created, name, token)
    ]
    words = f"; its code, ConfigMap {', '.join(left)}, goes when {run.name} is deleted" if left else ""
    return {"message": f"{asked} created{words}", "made": asked}


def free_name(run: RunView, known: Callable[[str, str], RunView | None]) -> str:
    """The next one, as far as is ``known``; empty: none, or it has not ended."""
    if Deed.RETRY not in open_to(run):
        return ""
    return going_on.next_name(run.name, lambda name: known(run.namespace, name) is not None)


async def _as_it_is(api: CallerApi, run: RunView, token: str) -> Json:
    """Its object, with what we keep nothing of: labels, and what another version may know."""
    try:
        raw = await api.read(RUNS.path(run.namespace, run.name), token)
    except KubeError as error:
        raise refusal.of_api(error, f"get {names.RUNS}", "view", run.namespace) from error
    if raw["metadata"]["uid"] != run.uid:
        raise RefusalError(409, f"{run.key} is another run now than the one that you looked at; look again")
    return raw


async def _kept(api: CallerApi, made: Json, created: Json, name: str, token: str) -> bool:
    """Whether the code goes no sooner than the new run; that of the old one alone would go with that one."""
    path = CONFIG_MAPS.path(made["metadata"]["namespace"], name)
    try:
        raw = await api.read(path, token, accept=METADATA)
        if code_maps.is_code(raw):
            await api.patch(path, code_maps.adoption(raw, made | {"metadata": created["metadata"]}), token)
    except (KubeError, KeyError):
        return False
    return True


def _why_not(error: CannotGoOnError) -> list[str]:
    return [f"It cannot be gone on from just so: {error}.", f"{error.remedy}."]


def _no_name(run: RunView) -> str:
    return f"{run.name} was gone on from too often for another name; lockstep retry {run.name} --name NAME gives one"


def _taken(run: RunView, asked: str) -> RefusalError:
    return RefusalError(409, f"there is a run {asked[:63]} in namespace {run.namespace} by now; look again")
