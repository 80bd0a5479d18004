"""What goes on from a run that has ended: the manifest of a new one, and the same in words.

The CLI and the page make it alike, of the object as the API server has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.api.base import names
from lockstep.core.checkpoints.origin import directory_of
from lockstep.core.checkpoints.previous_saves import place_of
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import ConditionType, StopReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.run.lineage import records_of
from lockstep.core.run.way_back import (
    begins,
    begun_at,
    has_unknown,
    missed_its_step,
    newest_saved,
    on_disks_alone,
    passed_over,
    retry_of,
    way_back,
)
from lockstep.present.amounts import duration, plural

Json = dict[str, Any]
MOST_NAMES = 100
"""That are tried for a new run."""
_MOUNT = f"{names.SHARED_CHECKPOINTS_MOUNT}/"
_KUBECTLS = "kubectl.kubernetes.io/"
_OVER = ("cancel", "suspend")
_OF_ARRAYS = (names.ANNOTATION_ARRAY, names.ANNOTATION_ARRAY_JOB)
_MET = ("dependsOn", "notBefore")
_RETRIED = re.compile(r"(.+)-r([1-9][0-9]{0,2})")


class CannotGoOnError(Exception):
    """Nothing can be gone on from by itself, although something may have been saved. ``remedy``: what to type."""

    def __init__(self, words: str, remedy: str) -> None:
        super().__init__(words)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a new run is to begin: at a ``step`` that was saved, ``fresh`` at step 0, or from the newest checkpoint."""

    step: int | None = None
    fresh: bool = False


NEWEST = Beginning()


@dataclass(frozen=True, slots=True)
class NextRun:
    """A new run, to be created. ``words``: what it begins with; ``left``: what of the old one's spec is over."""

    manifest: Json
    words: str
    left: list[str]


def next_run(
    run: RunView,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    name: str,
    now: float,
    begin: Beginning = NEWEST,
) -> NextRun:
    """One beside the run, called ``name``, as that one was but for where it begins. Raises CannotGoOnError."""
    manifest, left = again(run, metadata, spec, now)
    manifest["metadata"]["name"] = name
    forget_start(manifest)
    words = start_after(manifest, run, step=begin.step, fresh=begin.fresh)
    put_record(manifest, run)
    return NextRun(manifest, words, left)


def next_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """``llama-r2`` after ``llama``, ``llama-r3`` after that: no run of an array is called so. Empty where all that are
    tried are taken."""
    found = _RETRIED.fullmatch(name)
    stem, first = (found[1], int(found[2]) + 1) if found else (name, 2)
    for number in range(first, first + MOST_NAMES):
        end = f"-r{number}"
        tried = stem[: names.MAX_RUN_NAME - len(end)].rstrip("-.") + end
        if not is_taken(tried):
            return tried
    return ""


def preview(run: RunView, name: str, now: float, begin: Beginning = NEWEST) -> Iterator[str]:
    """What comes of a new run called ``name``, and what is lost. Raises CannotGoOnError."""
    if run.spec is None:
        return
    made = next_run(run, {}, run.spec.dump_written(), name, now, begin)
    saved = newest_saved(run.status)
    tier = ", in the shared tier" if saved is not None and not begin.fresh else ""
    yield f"A new run, {name}, is made as {run.name} was. It {made.words}{tier}. {run.name} and its saves stay."
    yield _repeats(run, saved if begin.step is None else begin.step, begin)
    local = on_disks_alone(run)
    if local is not None:
        yield f"Step {local} is on its nodes' own disks, which no other run can start from."
    yield f"{name} queues in {run.spec.queue} for {plural(run.spec.nodes, 'node')}."
    if made.left:
        yield f"{', '.join(made.left)} of {run.name} {'is' if len(made.left) == 1 else 'are'} over and left out."
    if run.status.next is not None:
        yield f"{run.status.next.name} went on from {run.name} before."
    if not is_true(run.status, ConditionType.SUCCEEDED) and not run.spec.cancel:
        yield f"That corrects nothing: {retry_of(run)} with -f FILE or flags changes what it runs."


def _repeats(run: RunView, saved: int | None, begin: Beginning) -> str:
    begun = begun_at(run) or 0
    if begin.fresh:
        saved, begun = None, 0
    if run.status.progress.time is None and not run.status.progress.step and run.status.attempts:
        # Nobody can count what its program did not tell; it may be days.
        since = f" since step {saved}" if saved is not None else ""
        if not since and not begin.fresh and has_unknown(run.status, SHARED):
            since = " since it last saved"
        return f"Whatever it did{since} is lost, to be repeated: it reported no step."
    steps = max(0, run.status.progress.step - (begun if saved is None else saved))
    if not steps:
        return "No step is lost."
    seconds = steps * (run.status.progress.step_microseconds or 0) / 1e6
    took = f" (about {duration(seconds)})" if seconds >= 1 else ""
    since = f" since step {saved}" if saved is not None else ""
    verb = "is" if steps == 1 else "are"
    return f"{plural(steps, 'step')}{since}{took} {verb} lost, to be repeated."


def again(run: RunView, metadata: Mapping[str, Any], spec: Mapping[str, Any], now: float) -> tuple[Json, list[str]]:
    """The manifest of a run as it was, to be submitted once more, and what of it is left out as it is over."""
    fields: Json = {field: value for field, value in spec.items() if field not in _OVER}
    left = [field for field in _MET if run.status.attempt and fields.pop(field, None)]
    if run.spec is not None and run.spec.deadline is not None and run.spec.deadline <= now:
        left.append("deadline")
        fields.pop("deadline", None)
    theirs = {
        "labels": _without(metadata.get("labels"), (names.LABEL_SET, names.LABEL_INDEX)),
        "annotations": _without(metadata.get("annotations"), (f"{names.GROUP}/", _KUBECTLS)),
    }
    kept = {part: text for part, text in theirs.items() if text}
    whose = {"name": run.name, "namespace": run.namespace}
    return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": whose | kept, "spec": fields}, left


def forget_start(manifest: Json) -> None:
    """What the run before began from is behind it; that it may begin at step 0, or must not, holds on."""
    checkpoint = manifest["spec"].get("checkpoint")
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("start"), dict):
        mode = {"mode": checkpoint["start"]["mode"]} if checkpoint["start"].get("mode") == "Require" else {}
        manifest["spec"]["checkpoint"] = checkpoint | {"start": mode}


def start_after(manifest: Json, run: RunView, *, step: int | None = None, fresh: bool = False) -> str:
    """Have it begin where the run stopped, and say so in words. What the manifest itself says to start from holds only
    as long as the run has saved nothing, as within a run, or nothing that was valid.
    Raises CannotGoOnError where there is nothing to go on from although something may have been saved."""
    spec = manifest["spec"]
    checkpoint = spec.get("checkpoint")
    if fresh:
        if isinstance(checkpoint, dict):
            spec["checkpoint"] = checkpoint | {"start": {"mode": "Fresh"}}
        return "begins at step 0"
    start = start_of(checkpoint)
    says = in_words(start) if start.get("run") or start.get("path") or start.get("mode") == "Fresh" else ""
    if _has_saved(run) and _names(start, run):
        step, says = start.get("step") if step is None else step, ""
    elif says and newest_saved(run.status) is None:  # what nobody recognises is nothing to go on from by itself
        if step is not None:
            raise CannotGoOnError(
                f"--step {step} is not used: {run.name} has saved nothing in a shared tier, and by its manifest the "
                f"new run {says}",
                "leave --step out, or write checkpoint.start.step",
            )
        return says
    elif says and step is None and _is_instead(start, run, checkpoint):
        return f"{says}; nothing that {run.name} saved was valid"
    found, words, whose, newest = _source(run, manifest)
    if found is None and step is not None:
        raise CannotGoOnError(
            f"{run.name} has no step {step} in a shared tier", f"{retry_of(run)} --fresh begins at step 0"
        )
    if found is None:
        _refuse_silence(run)
        if _was_to_be_fresh(run) and isinstance(checkpoint, dict):
            spec["checkpoint"] = checkpoint | {"start": {"mode": "Fresh"}}
        return "begins at step 0, as nothing was saved"
    refuse_another_claim(run, checkpoint)
    if step is None:
        others = "--step with an older one that one, --fresh step 0"
        refuse_what_went_wrong(run, f"{retry_of(run)} --step {{step}} takes it all the same, {others}")
    else:
        found["step"], words = step, f"step {step} of {whose}"
    if step is not None and _is_where_it_saves(found, run, manifest):
        if step != newest:
            raise _later_steps_are_found(whose, step)
        del found["step"]
    found |= {"mode": "Require"} if start.get("mode") == "Require" else {}
    found |= {"acceptCopy": True} if start.get("acceptCopy") is True and not says else {}
    spec["checkpoint"] = checkpoint | {"start": found}
    return f"goes on from {words}" + (f"; its manifest ({says}) is for one that has saved nothing" if says else "")


def put_record(manifest: Json, run: RunView) -> None:
    """The record of the run that it goes on from goes with it, as that one's object may be about to be deleted; and
    its index, where it was of an array, which its program reads."""
    records = json.dumps([record.dump() for record in records_of(run)], separators=(",", ":"))
    index = {name: run.annotations[name] for name in _OF_ARRAYS if name in run.annotations}
    annotations = manifest["metadata"].get("annotations") or {}
    manifest["metadata"]["annotations"] = index | annotations | {names.ANNOTATION_PREVIOUS: records}


def after_the_end(run: RunView) -> str:
    """What comes next of a run that has ended. The end is final, and no reason to begin anew."""
    if run.status.next is not None:
        return f"Next: nothing; run {run.status.next.name} goes on from it."
    if is_true(run.status, ConditionType.SUCCEEDED):
        onward, flag = begins(run, run.status)
        return f"Next: nothing, it is done; {' '.join(filter(None, (retry_of(run), flag)))} would {onward}."
    end = find(run.status, ConditionType.FINISHED)
    return f"Next: nothing by itself; {way_back(run, run.status, end.reason if end is not None else '')}."


def start_of(checkpoint: object) -> Json:
    """``checkpoint.start`` of a manifest, whatever that is."""
    start = checkpoint.get("start") if isinstance(checkpoint, dict) else None
    return dict(start) if isinstance(start, dict) else {}


def in_words(start: Mapping[str, Any]) -> str:
    """The same for people."""
    origin = start.get("run") or start.get("path")
    return f"goes on from {origin}" if origin else "begins at step 0"


def refuse_another_claim(run: RunView, checkpoint: object) -> None:
    """Raise CannotGoOnError where a manifest saves elsewhere than the run did."""
    theirs = run.spec.checkpoint.shared if run.spec is not None and run.spec.checkpoint is not None else None
    shared = checkpoint.get("shared") if isinstance(checkpoint, dict) else None
    claim = shared.get("claimName") if isinstance(shared, dict) else None
    if theirs is not None and claim != theirs.claim_name:
        saves = f"the new one on {claim}" if claim else "the new one names no shared tier"
        raise CannotGoOnError(
            f"{run.name} saved on claim {theirs.claim_name}, {saves}",
            f"write checkpoint: {{shared: {{claimName: {theirs.claim_name}}}}}",
        )


def _source(run: RunView, manifest: Json) -> tuple[Json | None, str, str, int | None]:
    """What ``checkpoint.start`` is to be, the same in words, whose that is, and its newest step, if known. The run is
    named where its object stays."""
    saved, before, root = newest_saved(run.status), run.status.checkpoint.previous_saves, run.status.resolved.start_root
    if _has_saved(run):
        stays = manifest["metadata"].get("name") != run.name
        step = f"step {saved}" if saved is not None else "what is there"
        found: Json = {"run": run.name} if stays else {"path": _inside(directory_of(run))}
        return found, f"{step} of {run.name}", run.name, saved
    if before:
        place = place_of(before[0], directory_of(run))
        return {"path": place}, f"step {before[0].step} of an earlier run", "an earlier run", before[0].step
    if root.startswith(_MOUNT) and run.spec is not None and run.spec.checkpoint is not None:
        asked = run.spec.checkpoint.start
        missed, whose = missed_its_step(run, run.status), f"what {run.name} was to start from"
        found = {"path": _inside(root)}
        found |= {"step": asked.step} if asked.step is not None and not missed else {}
        found |= {"acceptCopy": True} if asked.accept_copy else {}
        return found, f"the newest of {whose}" if missed else whose, whose, None
    return None, "", "", None


def _has_saved(run: RunView) -> bool:
    """Where every node sees it, and other runs."""
    return newest_saved(run.status) is not None or has_unknown(run.status, SHARED)


def _names(start: Json, run: RunView) -> bool:
    """The manifest itself says to go on from this very run."""
    return start.get("run") == run.name or start.get("path") == _inside(directory_of(run))


def _is_instead(start: Json, run: RunView, checkpoint: object) -> bool:
    """The run ended as nothing that it had saved was valid, and the manifest names another place than that of the run
    did. Where it has no times held against what was saved, that is meant. What a retry began from a retry wrote, not
    its user: that a manifest differs from it says nothing."""
    end = find(run.status, ConditionType.FINISHED)
    if end is None or end.reason != StopReason.NO_VALID_CHECKPOINT:
        return False
    if names.ANNOTATION_PREVIOUS in run.annotations:
        return False
    before = run.spec.checkpoint.start if run.spec is not None and run.spec.checkpoint is not None else None
    known = (before.run or "", before.path or "") if before is not None else ("", "")
    named = (start.get("run") or "", start.get("path") or "")
    accepts_times = isinstance(checkpoint, dict) and checkpoint.get("trustTimes") is False
    return any(named) and named != known and not accepts_times


def _was_to_be_fresh(run: RunView) -> bool:
    return run.spec is not None and run.spec.checkpoint is not None and run.spec.checkpoint.start.mode == "Fresh"


def refuse_what_went_wrong(run: RunView, remedy: str) -> None:
    """Raise CannotGoOnError where the newest that is valid is one that recovery passes over: a new run would load it.
    ``remedy`` has ``{step}`` for its step."""
    newest, checkpoint = passed_over(run.status), run.status.checkpoint
    if newest is None:
        return
    save = Save(newest.step, newest.attempt or 0)
    bad = (each for each in checkpoint.quarantined if each.tier == newest.tier)
    why = next((each.reason for each in bad if Save(each.step, each.attempt).may_be(save)), None)
    if why is not None:
        words = f"step {newest.step}, the newest checkpoint of {run.name}, is in quarantine: {why}"
    else:
        words = f"training went wrong after step {checkpoint.ceiling} of {run.name}, and its newest checkpoint is of "
        words += f"step {newest.step}"
    raise CannotGoOnError(words, remedy.format(step=newest.step))


def _refuse_silence(run: RunView) -> None:
    """It has saved, and nothing of that can be started from."""
    local = [each.step for each in run.status.checkpoint.latest if each.tier == LOCAL]
    if local or has_unknown(run.status, LOCAL):
        what = f"step {max(local)} of {run.name}" if local else f"what {run.name} may have saved"
        words = f"{what} is on its nodes' own disks, which no other run can start from"
        raise CannotGoOnError(words, f"{retry_of(run)} --fresh begins at step 0; a shared tier would have kept it")


def _is_where_it_saves(found: Json, run: RunView, manifest: Json) -> bool:
    """What the new run is to start from is the one directory that all of its attempts save in."""
    theirs: Json = manifest["spec"]["checkpoint"]
    default = f"{manifest['metadata'].get('namespace')}/{manifest['metadata'].get('name')}"
    own = theirs["shared"].get("path") or default
    return theirs.get("layout") == "Shared" and found.get("path", _inside(directory_of(run))) == own


def _later_steps_are_found(whose: str, step: int) -> CannotGoOnError:
    words = f"step {step} of {whose} is in the directory that all attempts save in (layout: Shared), with later ones"
    remedy = "-f FILE with another checkpoint.shared.path has the new run save elsewhere; without --step it goes on"
    return CannotGoOnError(words, f"{remedy} from the newest")


def _inside(path: str) -> str:
    return path.removeprefix(_MOUNT)


def _without(texts: Mapping[str, str] | None, ours: tuple[str, ...]) -> Json:
    return {key: text for key, text in (texts or {}).items() if not key.startswith(ours)}
