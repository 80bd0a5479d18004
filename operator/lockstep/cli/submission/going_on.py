"""What a new run goes on from: the checkpoints of another one, as `checkpoint.start` names them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.cli import runs
from lockstep.cli.client import Json
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.submission.array_manifests import is_set
from lockstep.core.checkpoints.origin import directory_of
from lockstep.core.checkpoints.previous_saves import directory_of as directory_of_save
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.run.lineage import records_of

_MOUNT = f"{names.SHARED_CHECKPOINTS_MOUNT}/"
_KUBECTLS = "kubectl.kubernetes.io/"
_OVER = ("cancel", "suspend")
_MET = ("dependsOn", "notBefore")


def again(raw: Json) -> tuple[Json, list[str]]:
    """The manifest of a run as it was, to be submitted once more, and what of it is left out as it is over."""
    run, metadata = runs.view(raw), raw["metadata"]
    spec: Json = {field: value for field, value in raw["spec"].items() if field not in _OVER}
    left = [field for field in _MET if run.status.attempt and spec.pop(field, None)]
    if run.spec is not None and run.spec.deadline is not None and run.spec.deadline <= time.time():
        left.append("deadline")
        spec.pop("deadline")
    theirs = {
        "labels": _without(metadata.get("labels"), (names.LABEL_SET, names.LABEL_INDEX)),
        "annotations": _without(metadata.get("annotations"), (f"{names.GROUP}/", _KUBECTLS)),
    }
    kept = {part: text for part, text in theirs.items() if text}
    whose = {"name": metadata["name"], "namespace": metadata["namespace"]}
    return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": whose | kept, "spec": spec}, left


def forget_start(manifest: Json) -> None:
    """What the run before began from is behind it; that it may begin at step 0, or must not, holds on."""
    checkpoint = manifest["spec"].get("checkpoint")
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("start"), dict):
        mode = {"mode": checkpoint["start"]["mode"]} if checkpoint["start"].get("mode") == "Require" else {}
        manifest["spec"]["checkpoint"] = checkpoint | {"start": mode}


def start_after(manifest: Json, raw: Json, *, step: int | None, fresh: bool) -> str:
    """Have it begin where the run ``raw`` stopped, and say so in words. What the manifest itself says to start from
    stays. Raises CliError where there is nothing to go on from although something may have been saved."""
    run = runs.view(raw)
    spec = manifest["spec"]
    checkpoint = spec.get("checkpoint")
    if fresh and step is not None:
        raise UsageError("--fresh begins at step 0, --step says another one", "leave one of them out")
    if fresh:
        if isinstance(checkpoint, dict):
            spec["checkpoint"] = checkpoint | {"start": {"mode": "Fresh"}}
        return "begins at step 0"
    start = _start_of(checkpoint)
    if start.get("run") or start.get("path") or (start.get("mode") == "Fresh" and step is None):
        return _in_words(start)
    found, words = _source(run, manifest)
    if found is None and step is not None:
        raise CliError(f"{run.name} has no step {step} in a shared tier", f"{_retry(run)} --fresh begins at step 0")
    if found is None:
        _refuse_silence(run)
        if _was_to_be_fresh(run) and isinstance(checkpoint, dict):
            spec["checkpoint"] = checkpoint | {"start": {"mode": "Fresh"}}
        return "begins at step 0, as nothing was saved"
    _refuse_another_claim(run, checkpoint)
    if step is None:
        _refuse_what_went_wrong(run)
    else:
        found["step"], words = step, f"step {step} of {run.name}"
    if start.get("mode") == "Require":
        found["mode"] = "Require"
    if _saves_in_the_same_directory(run, manifest) and step is None:
        return f"goes on from {words}"  # it finds them by itself
    spec["checkpoint"] = checkpoint | {"start": found}
    return f"goes on from {words}"


def start_from(manifest: Json, raw: Json) -> None:
    """Have the manifest of another run, or of an array, start from the newest checkpoint of the run ``raw``."""
    run = runs.view(raw)
    name = raw["metadata"]["name"]
    if manifest["metadata"].get("name") == name and not is_set(manifest):
        raise UsageError(
            f"{name} cannot start from itself", f"lockstep retry {name} -f FILE puts a new run in its place"
        )
    if _saved(run) is None:
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
    start = _start_of(checkpoint)
    if start.get("path") or start.get("run") not in (None, name):
        raise UsageError(f"--from {name}, and by its manifest it {_in_words(start)}", "leave one of them out")
    _refuse_another_claim(run, checkpoint)
    inner["checkpoint"] = checkpoint | {"start": {k: v for k, v in start.items() if k != "mode"} | {"run": name}}


def put_record(manifest: Json, raw: Json) -> None:
    """The record of the run that it goes on from goes with it: that one's object may be about to be deleted."""
    records = json.dumps([record.dump() for record in records_of(runs.view(raw))], separators=(",", ":"))
    annotations = manifest["metadata"].get("annotations") or {}
    manifest["metadata"]["annotations"] = annotations | {names.ANNOTATION_PREVIOUS: records}


def _source(run: RunView, manifest: Json) -> tuple[Json | None, str]:
    """What ``checkpoint.start`` is to be, and the same in words. The run is named where its object stays."""
    saved, before, root = _saved(run), run.status.checkpoint.previous_saves, run.status.resolved.start_root
    if saved is not None or run.status.checkpoint.unrecognised:
        stays = manifest["metadata"].get("name") != run.name
        step = f"step {saved}" if saved is not None else "what is there"
        return ({"run": run.name} if stays else {"path": _inside(directory_of(run))}), f"{step} of {run.name}"
    if before:
        return {"path": directory_of_save(before[0].path, before[0].uid)}, f"step {before[0].step} of an earlier run"
    if root.startswith(_MOUNT) and run.spec is not None and run.spec.checkpoint is not None:
        asked = run.spec.checkpoint.start
        found: Json = {"path": _inside(root)}
        found |= {"step": asked.step} if asked.step is not None else {}
        found |= {"acceptCopy": True} if asked.accept_copy else {}
        return found, f"what {run.name} was to start from"
    return None, ""


def _saved(run: RunView) -> int | None:
    """The newest step that it has saved where every node sees it."""
    return max((each.step for each in run.status.checkpoint.latest if each.tier == SHARED), default=None)


def _was_to_be_fresh(run: RunView) -> bool:
    return run.spec is not None and run.spec.checkpoint is not None and run.spec.checkpoint.start.mode == "Fresh"


def _refuse_what_went_wrong(run: RunView) -> None:
    """Recovery had gone back, and the newest that is valid was saved after that."""
    ceiling, saved = run.status.checkpoint.ceiling, _saved(run)
    if ceiling is not None and saved is not None and saved > ceiling:
        raise CliError(
            f"training went wrong after step {ceiling} of {run.name}, and its newest checkpoint is of step {saved}",
            f"{_retry(run)} --step {saved} takes it all the same, --step with an older one that one, --fresh step 0",
        )


def _refuse_silence(run: RunView) -> None:
    """It has saved, and nothing of that can be started from."""
    local = [each.step for each in run.status.checkpoint.latest if each.tier == LOCAL]
    if local:
        words = f"step {max(local)} of {run.name} is on its nodes' own disks, which no other run can start from"
        raise CliError(words, f"{_retry(run)} --fresh begins at step 0; a shared tier would have kept it")


def _refuse_another_claim(run: RunView, checkpoint: object) -> None:
    theirs = run.spec.checkpoint.shared if run.spec is not None and run.spec.checkpoint is not None else None
    shared = checkpoint.get("shared") if isinstance(checkpoint, dict) else None
    claim = shared.get("claimName") if isinstance(shared, dict) else None
    if theirs is not None and claim != theirs.claim_name:
        saves = f"the new one on {claim}" if claim else "the new one names no shared tier"
        raise CliError(
            f"{run.name} saved on claim {theirs.claim_name}, {saves}",
            f"write checkpoint: {{shared: {{claimName: {theirs.claim_name}}}}}",
        )


def _saves_in_the_same_directory(run: RunView, manifest: Json) -> bool:
    checkpoint = run.spec.checkpoint if run.spec is not None else None
    theirs: Json = manifest["spec"]["checkpoint"]
    if checkpoint is None or checkpoint.layout != "Shared" or theirs.get("layout") != "Shared":
        return False
    default = f"{manifest['metadata'].get('namespace')}/{manifest['metadata'].get('name')}"
    return _inside(directory_of(run)) == (theirs["shared"].get("path") or default)


def _start_of(checkpoint: object) -> Json:
    start = checkpoint.get("start") if isinstance(checkpoint, dict) else None
    return dict(start) if isinstance(start, dict) else {}


def _inside(path: str) -> str:
    return path.removeprefix(_MOUNT)


def _retry(run: RunView) -> str:
    return f"lockstep retry {run.name}"


def _in_words(start: Mapping[str, Any]) -> str:
    origin = start.get("run") or start.get("path")
    return f"goes on from {origin}" if origin else "begins at step 0"


def _without(texts: Mapping[str, str] | None, ours: tuple[str, ...]) -> Json:
    return {key: text for key, text in (texts or {}).items() if not key.startswith(ours)}
