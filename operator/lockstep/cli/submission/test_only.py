"""`lockstep submit --test-only`: a dry run of admission, by the operator. Nothing is left behind."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator

from lockstep.api.base import names
from lockstep.api.run_status import TrialStatus
from lockstep.cli import output, runs
from lockstep.cli.actions import wait
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import CliError, ExitCode
from lockstep.cli.submission import code, submit
from lockstep.cli.submission.array_manifests import called
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.reasons import ConditionType
from lockstep.present.amounts import moment, plural
from lockstep.present.runs import queue_of
from lockstep.present.start_estimate import limit_answered

_ANSWER_SECONDS = 60.0
_SUFFIX = "-test-"
_GENERATED = 5  # characters that the API server puts behind it


def show_start(cluster: Cluster, manifest: Json, form: str, sent: code.Sent) -> None:
    """Ask, and print the answer, or the object that has it. ``sent``: code that went along."""
    raw = ask(cluster, manifest, sent)
    if form == "name":
        output.print_lines(answer_lines(called(manifest), raw, time.time()))
    else:
        output.print_object(raw, form)


def ask(cluster: Cluster, manifest: Json, sent: code.Sent | None = None, *, seconds: float = _ANSWER_SECONDS) -> Json:
    """The object with its answer, which is deleted by then. Raises CliError when the run is refused, and with exit
    code 124 when the operator does not answer."""
    raw = submit.create(cluster, question(manifest), dry_run=False, sent=sent)
    path, uid = runs_path(cluster.namespace, raw["metadata"]["name"]), raw["metadata"]["uid"]
    try:
        deadline = time.monotonic() + seconds
        while not is_answered(raw):
            raw = wait.next_version(cluster, raw, deadline)
    except CliError as error:
        if error.exit_code is not ExitCode.TIMED_OUT:
            raise
        words = f"the operator has not said within {seconds:.0f} s when it would start"
        accepted = find(runs.view(raw).status, ConditionType.ACCEPTED)
        why = accepted.message if accepted is not None and accepted.status == "Unknown" else ""
        remedy = why or "is it running? kubectl get pods -n lockstep-system"
        raise CliError(words, remedy, ExitCode.TIMED_OUT) from error
    finally:
        with contextlib.suppress(CliError):  # else the operator deletes it
            cluster.delete(path, uid)
    return raw


def question(manifest: Json) -> Json:
    """The same run under a name of its own, marked so that it gets no nodes."""
    asked = copy.deepcopy(manifest)
    metadata = asked["metadata"]
    stem = metadata.pop("name", "") or metadata.get("generateName", "run")
    most = names.MAX_RUN_NAME - _GENERATED - len(_SUFFIX)
    metadata["generateName"] = stem[:most].rstrip("-") + _SUFFIX
    metadata["annotations"] = {**(metadata.get("annotations") or {}), names.ANNOTATION_TEST_ONLY: "true"}
    return asked


def is_answered(raw: Json) -> bool:
    """Raises CliError, with the operator's words, when the run is refused or was ended."""
    run = runs.view(raw)
    accepted, answer = find(run.status, ConditionType.ACCEPTED), run.status.test_only
    if accepted is not None and accepted.status == "False" and accepted.observed_generation == run.generation:
        raise CliError(f"it would not be accepted: {accepted.message}")
    if is_true(run.status, ConditionType.FINISHED):
        raise CliError(f"somebody has ended the question ({run.status.reason})", "ask again")
    return answer is not None and answer.observed_generation == run.generation


def answer_lines(name: str, raw: Json, now: float) -> Iterator[str]:
    """The answer in sentences. Raises CliError when the run would never start."""
    run = runs.view(raw)
    answer = run.status.test_only or TrialStatus(at=now)
    why = f"{answer.reason}: {answer.message}"
    if answer.start is None and not answer.assumption:
        raise CliError(f"{name} would not start: {why}")
    if answer.start is None:
        yield f"{name} would start at a time that is {answer.assumption}"
    else:
        more = run.spec.nodes - len(answer.nodes) if run.spec is not None else 0
        where = " ".join(answer.nodes) + (f" and {more} more" if more > 0 and answer.nodes else "")
        when = "now" if not answer.reason else moment(answer.start, now)
        yield f"{name} would start {when} on {where}"
        if answer.reason:
            yield f"  if {answer.assumption}"
    if answer.reason:
        yield f"  {why}"
    yield f"  with {plural(answer.priority, 'point')} of priority in queue {queue_of(run)}"
    if words := limit_answered(answer):
        yield f"  its time: {words}"
