"""A job that another one submits from inside (``sbatch`` in a script): for the same user, queue and namespace, with the
volumes, environment, image and checkpoint claim of its own, and only where the queue lets jobs do so."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta, timezone
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from lockstep.api.base import names, nesting, times
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.batch.components import gang_of
from lockstep.core.batch.submission import NumberedJob, Submitted, Surroundings, WantedRun, labels_of, wanted
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import JobAsk
from lockstep.core.pods.pod_template import merged, section
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.submission import moments
from lockstep.slurm.submission.batch import OptionOutcome, batches
from lockstep.slurm.submission.directives import ScriptError, check_script, directives, wrapped

CLUSTER = "lockstep"
"""SLURM_CLUSTER_NAME, and what -M may name."""
_INHERITED = ("gpuResource", "shmSize", "imagePullSecrets", "serviceAccountName", "podTemplate", "network")
"""Fields of the run that its children have as well, unless their submission says otherwise."""
_OUTSIDE = "is for submissions from outside a job"


class SubmissionRefusedError(Exception):
    """Why it is not submitted."""


class _Body(Struct):
    options: tuple[str, ...] = ()
    script: str = ""
    name: str = ""
    arguments: tuple[str, ...] = ()
    directory: str = ""
    command: str = ""  # path of the script's file, from that directory
    environment: dict[str, str] = {}
    variables: dict[str, str] = {}  # that --export names
    now: float = 0.0  # unix s, by the clock of its node; 0: an older worker, which does not tell
    utc_offset: int = 0  # seconds that its zone is east of UTC then


_bodies = msgspec.json.Decoder(_Body)


def submitted_name(run: RunView, ask: JobAsk) -> str:
    """The one name that the run of a request can have, so that creating it twice is harmless."""
    mark = sha256(f"{run.uid}/{ask.id}".encode()).hexdigest()[:8]
    return f"{run.name[: names.MAX_RUN_NAME - 9].rstrip('-')}-{mark}"


def mark_of(run: RunView, ask: JobAsk) -> str:
    """What the run of a request says of itself."""
    return f"{run.uid}/{ask.id}"


def manifest_of(run: RunView, ask: JobAsk, jobs: Mapping[int, NumberedJob]) -> dict[str, Any]:
    """The run that is to be created. Raises SubmissionRefusedError."""
    assert run.spec is not None
    own = run.spec.dump_written()
    made = _read(run, ask, jobs).manifest
    spec = {field: own[field] for field in _INHERITED if field in own} | made["spec"]
    spec.pop("podTemplate", None)
    template = _template(run.spec, made["spec"].get("podTemplate", {}))
    if template:
        spec["podTemplate"] = template
    if (queue := queue_of(run)) != names.DEFAULT_QUEUE:
        spec["queue"] = queue
    metadata = made["metadata"]
    metadata.pop("generateName")
    user = run.annotations.get(names.ANNOTATION_USER)
    return {
        **made,
        "metadata": {
            **metadata,
            "name": submitted_name(run, ask),
            "namespace": run.namespace,
            "annotations": {
                **metadata.get("annotations", {}),
                **({names.ANNOTATION_USER: user} if user else {}),
                names.ANNOTATION_SUBMITTED_BY: mark_of(run, ask),
            },
        },
        "spec": spec,
    }


def _template(parent: TrainingRunSpec, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The parent's, in which labels that it asked of nodes itself (-C) give way to those that are asked for now."""
    assert parent.launcher.batch is not None
    own = dict(parent.pod_template or {})
    selector = dict(section(own, "spec", "nodeSelector"))
    for key, value in labels_of(parent.launcher.batch.options.get("constraint", "")).items():
        if selector.get(key) == value:
            del selector[key]
    pod = {key: value for key, value in section(own, "spec").items() if key != "nodeSelector"}
    pod |= {"nodeSelector": selector} if selector else {}
    own = {key: value for key, value in own.items() if key != "spec"} | ({"spec": pod} if pod else {})
    return merged(asked, own)


def notices_of(run: RunView, ask: JobAsk, jobs: Mapping[int, NumberedJob]) -> list[str]:
    """What of it has no effect, in words; nothing once it would be refused, as a job that it waits for is gone."""
    try:
        return [_inside(row).sentence for row in _read(run, ask, jobs).notices]
    except SubmissionRefusedError:
        return []


def _inside(row: OptionOutcome) -> OptionOutcome:
    """``--export=ALL`` in other words: of the shell nothing is known here but what is named."""
    if (row.option, row.value) != ("--export", "ALL"):
        return row
    return row._replace(words="the job has the environment that this one was given, and what --export=ALL,NAME names")


def _read(run: RunView, ask: JobAsk, jobs: Mapping[int, NumberedJob]) -> WantedRun:
    """Raises SubmissionRefusedError."""
    try:
        return _made(run, nesting.decode(_bodies, ask.body), jobs)
    except msgspec.DecodeError as error:
        raise SubmissionRefusedError(f"the request is not understood: {error}") from None
    except (OptionError, ScriptError) as error:
        raise SubmissionRefusedError(" ".join(str(error).split())) from None
    except RecursionError:
        raise SubmissionRefusedError("the request is not understood") from None


def _made(run: RunView, body: _Body, jobs: Mapping[int, NumberedJob]) -> WantedRun:
    """Raises SubmissionRefusedError, OptionError and ScriptError."""
    spec = run.spec
    assert spec is not None
    assert spec.launcher.batch is not None
    name = body.name or "sbatch"
    script = body.script
    wraps = [option.partition("=")[2] for option in body.options if option.startswith("--wrap=")]
    if not script and wraps:
        script = wrapped(wraps[-1])
    check_script(script.encode("utf-8", "replace"))
    words = ["--", name, *body.arguments]
    request, rows, components = gang_of(
        batches(directives(name, script), body.environment, [*body.options, *words], _unread, CLUSTER)
    )
    if request.array:
        raise SubmissionRefusedError(f"--array {_OUTSIDE}")
    if request.test_only or request.wait:
        raise SubmissionRefusedError(f"--{'test-only' if request.test_only else 'wait'} {_OUTSIDE}")
    if request.partitions and (queue := queue_of(run)) not in request.partitions:
        raise SubmissionRefusedError(
            f"--partition {','.join(request.partitions)}: a job submits to its own queue, {queue}"
        )
    own = spec.launcher.batch
    submitted = Submitted(
        script,
        name,
        body.arguments,
        body.directory,
        own.user,
        own.uid,
        own.gid,
        own.host,
        body.variables,
        body.command,
    )
    written = spec.dump_written()
    like_own: dict[str, Any] = {field: written[field] for field in ("image", "volumes", "env") if field in written}
    if spec.checkpoint is not None and spec.checkpoint.shared is not None:  # the claim alone: each has its own place
        like_own["scriptCheckpointClaim"] = spec.checkpoint.shared.claim_name

    def job(number: str) -> NumberedJob:
        found = jobs.get(int(number))
        if found is None:
            raise ValueError(f"there is no job {number} in namespace {run.namespace}")
        return found

    def moment(option: str, text: str) -> str:
        return _moment(text, body)

    made = wanted(request, rows, submitted, Surroundings(like_own, moment, job, _unread), components)
    if made.refusals:
        raise SubmissionRefusedError("; ".join(row.sentence for row in made.refusals))
    made.manifest["spec"].pop("queue", None)
    return made


def _moment(text: str, body: _Body) -> str:
    """By the clock of who asks: the same however often it is told."""
    with suppress(ValueError):
        return times.to_rfc3339(times.to_unix(text))
    try:
        if not body.now:
            raise ValueError(text)
        zone = timezone(timedelta(seconds=body.utc_offset))
        return times.to_rfc3339(moments.moment(text, body.now, zone))
    except (ValueError, OverflowError):
        raise ValueError(f"{text} is no time; write now+1hour, 16:00, tomorrow or 2026-12-01T08:00:00Z") from None


def _unread(path: str) -> str:
    raise OSError(2, "files of the job's nodes are not read here")
