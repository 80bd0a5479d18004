"""What a new run or array goes on from, as flags say it: `present.going_on` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lockstep.cli import runs
from lockstep.cli.client import Json
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.submission.array_manifests import is_set
from lockstep.core.model.snapshot import RunView
from lockstep.core.run.way_back import newest_saved
from lockstep.present import going_on
from lockstep.present.going_on import CannotGoOnError


def start_after(manifest: Json, run: RunView, *, step: int | None, fresh: bool) -> str:
    """Have it begin where the run stopped, and say so in words. Raises CliError where there is nothing to go on from
    although something may have been saved."""
    with _told():
        return going_on.start_after(manifest, run, step=step, fresh=fresh)


def start_from(manifest: Json, raw: Json) -> None:
    """Have the manifest of another run, or of an array, start from the newest checkpoint of the run ``raw``."""
    run = runs.view(raw)
    name = raw["metadata"]["name"]
    if manifest["metadata"].get("name") == name and not is_set(manifest):
        raise UsageError(
            f"{name} cannot start from itself", f"lockstep retry {name} -f FILE puts a new run in its place"
        )
    if newest_saved(run.status) is None:
        raise CliError(f"{name} has saved nothing in a shared tier that another run could start from")
    spec = manifest.get("spec")
    template = spec.get("template") if is_set(manifest) and isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else spec
    if not isinstance(inner, dict):
        return  # which is for others to refuse
    checkpoint = inner.get("checkpoint")
    if checkpoint is None:  # as there is nothing else to be read of it
        checkpoint = {field: value for field, value in raw["spec"]["checkpoint"].items() if field != "start"}
        shared = {field: value for field, value in checkpoint["shared"].items() if field != "path"}
        checkpoint["shared"] = shared
    if not isinstance(checkpoint, dict):
        return
    start = going_on.start_of(checkpoint)
    if start.get("path") or start.get("run") not in (None, name):
        raise UsageError(f"--from {name}, and by its manifest it {going_on.in_words(start)}", "leave one of them out")
    with _told():
        going_on.refuse_another_claim(run, checkpoint)
        if start.get("step") is None:
            going_on.refuse_what_went_wrong(run, "write checkpoint.start.step: {step} takes it all the same")
    inner["checkpoint"] = checkpoint | {"start": {k: v for k, v in start.items() if k != "mode"} | {"run": name}}


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except CannotGoOnError as error:
        raise CliError(str(error), error.remedy) from error
