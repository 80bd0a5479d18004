"""Stacks of hangs that are over, from the ConfigMap that has them: read by the viewer's own token, within bounds."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from lockstep.api.base import nesting
from lockstep.controller.kube.caller import CallerApi, Json
from lockstep.controller.kube.errors import ApiError, KubeError, UnreachableError
from lockstep.controller.runtime.resources import CONFIG_MAPS
from lockstep.controller.web import refusal
from lockstep.controller.web.refusal import RefusalError
from lockstep.core.failures.stack_groups import MAX_GROUPS, STACKS_KEY
from lockstep.core.model.snapshot import RunView

MOST_CHARACTERS = 4096
"""Of one group; a worker's are kept to half of it."""


async def of_attempt(api: CallerApi, run: RunView, attempt: str, token: str) -> dict[str, Any]:
    """``groups``: ranks that stood alike, the most first, and where. Raises RefusalError."""
    kept = {str(each.number): each.stacks for each in run.status.attempts}.get(attempt)
    if not kept:
        raise RefusalError(404, f"no stacks of attempt {attempt[:10]} of {run.name} are kept")
    try:
        raw = await api.read(CONFIG_MAPS.path(run.namespace, kept), token)
    except UnreachableError as error:
        raise RefusalError(503, "the API server does not answer, or with more than can be shown") from error
    except KubeError as error:
        if isinstance(error, ApiError) and error.status == 404:
            raise RefusalError(404, f"ConfigMap {kept} is not there any more") from error
        raise refusal.of_api(error, "get configmaps", "view", run.namespace) from error
    return {"groups": [*_groups(raw)]}


def _groups(raw: Json) -> Iterator[dict[str, str]]:
    """Whoever may write it may have written anything."""
    try:
        rows = nesting.loads(raw["data"][STACKS_KEY])
    except (KeyError, TypeError, ValueError, AttributeError):
        rows = None
    for row in islice(rows if isinstance(rows, list) else (), MAX_GROUPS):
        if isinstance(row, dict) and isinstance(row.get("ranks"), str) and isinstance(row.get("stacks"), str):
            yield {"ranks": row["ranks"][:MOST_CHARACTERS], "text": row["stacks"][:MOST_CHARACTERS]}
