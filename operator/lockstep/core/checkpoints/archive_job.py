"""The job that copies checkpoints between the shared tier and the archive: its body, and what it says at its end."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

from lockstep.api.base import names, nesting
from lockstep.api.base.durations import parse_duration
from lockstep.api.checkpoint_spec import ArchiveTier, CheckpointFormat, RetentionSpec
from lockstep.api.checkpoint_status import ArchivedCheckpoint, ArchiveJobStatus
from lockstep.core.checkpoints.step_names import reached_step
from lockstep.core.model.gang_settings import time_variables
from lockstep.core.model.quarantine import Save, SavesFrom
from lockstep.core.model.settings import ArchiveSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods import pod_template

RESULT_FORMAT = "lockstep-archive-job/1"
MAX_TOLD = 8
"""Checkpoints that a job names in its termination message, which may have 4,096 bytes."""
FINAL_CODES = (64, 65, 66, 67, 68, 71, 72, 73, 76, 77, 78, 79)
"""Exit codes after which the same job cannot succeed (lockstep.archive.outcomes)."""

CONTAINER = "archive"
UPLOAD, RESTORE, LIST, TIDY, PRUNE = "Upload", "Restore", "List", "Tidy", "Prune"
_REMOVE = "prune"  # the program's word for the last two
_MAX_NAME = 63  # job names become a label of the pod
_NOBODY = 65_532
_MOST = 2**53
_MOST_NODES = 1 << 20
_FORMATS = frozenset(get_args(CheckpointFormat))
_LAST_MOMENT = 253_402_300_799  # of the year 9999


@dataclass(frozen=True, slots=True)
class JobResult:
    """The JSON that an archive job leaves in its pod's termination message. `outcome` Done, or why not."""

    outcome: str
    message: str = ""
    path: str = ""
    checkpoint: ArchivedCheckpoint | None = None
    published: tuple[ArchivedCheckpoint, ...] | None = None


def parse_result(text: str) -> JobResult | None:
    """None when the message is cut off, missing or not of this form: then only the job's own state is known.

    What is returned fits into status: a pod's last words are anybody's who can start one.
    """
    try:
        body = nesting.loads(text)
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()  # half a character comes from a file's name
        if body["format"] != RESULT_FORMAT:
            return None
        published = body.get("published")
        return JobResult(
            outcome=str(body["outcome"]),
            message=str(body.get("message", "")),
            path=str(body.get("path", "")),
            checkpoint=_archived(body["checkpoint"]) if "checkpoint" in body else None,
            published=None if published is None else tuple(_archived(entry) for entry in published[:MAX_TOLD]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _whole(number: Any, most: int = _MOST) -> int:
    if not isinstance(number, int) or not 0 <= number <= most:
        raise ValueError(f"{number!r} is not a count")
    return number


def _archived(entry: Mapping[str, Any]) -> ArchivedCheckpoint:
    form = str(entry.get("format", ""))
    return ArchivedCheckpoint(
        step=_whole(entry["step"]),
        attempt=_whole(entry["attempt"]),
        bytes=_whole(entry.get("bytes", 0)),
        world=_whole(entry.get("world", 0), _MOST_NODES),
        format=form if form in _FORMATS else "",
        time=float(_whole(entry["time"], _LAST_MOMENT)) if "time" in entry else None,
    )


def job_name(
    run: RunView, archive: ArchiveTier | None, action: str, attempt: int, step: int, failures: int, fetched: int = 0
) -> str:
    """The one name of this work, in this archive, on its so-many-th try: making it twice is harmless.

    What is ``fetched`` from the archive once more has another name: the job of before may still be there.
    """
    what = {
        UPLOAD: f"archive-{attempt}-{step}",
        RESTORE: f"restore-{attempt}-{step}",
        LIST: "archive-list",
        TIDY: f"tidy-{attempt}-{step}",
        PRUNE: f"prune-{attempt}-{step}",
    }[action]
    again = f"-n{fetched}" if fetched and action in (RESTORE, LIST) else ""
    again += f"-{failures}" if failures else ""
    place = f"-{_digest(archive)}" if archive is not None and action != TIDY else ""
    suffix = f"-{run.uid[:5]}{place}-{what}{again}"
    return run.name[: _MAX_NAME - len(suffix)].rstrip("-.") + suffix


def _digest(archive: ArchiveTier) -> str:
    place = f"{archive.uri} {archive.endpoint or ''}"
    return hashlib.sha256(place.encode("utf-8", "replace")).hexdigest()[:6]


def job_body(
    run: RunView,
    archive: ArchiveTier | None,
    work: ArchiveJobStatus,
    settings: ArchiveSettings,
    *,
    pinned: tuple[str, ...] = (),
    quarantined: tuple[Save, ...] = (),
) -> dict[str, Any]:
    """The Job for `work`, owned by the run, fit for namespaces under Pod Security level restricted.

    `pinned` is in the words of the tier that is pruned: places of the archive, or paths of the shared tier.
    `archive` may be None where `work` is about the shared tier alone.
    """
    assert run.spec is not None
    assert run.spec.checkpoint is not None
    assert run.spec.checkpoint.shared is not None
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.LABEL_ARCHIVE_OF: run.uid,
    }
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.image,
        "command": ["python3", "-m", "lockstep.archive"],
        "args": job_arguments(run, archive, work, settings, pinned, quarantined),
        "env": [
            {"name": name, "value": value}
            for name, value in {
                "LOCKSTEP_RESULT_FILE": "/dev/termination-log",
                **time_variables(settings.shared_clock_skew, trusted=run.spec.checkpoint.trust_times),
            }.items()
        ],
        "resources": {
            "requests": {"cpu": settings.cpu, "memory": settings.memory},
            "limits": {"cpu": settings.cpu, "memory": settings.memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {
                "name": "shared-checkpoints",
                "mountPath": names.SHARED_CHECKPOINTS_MOUNT,
                "readOnly": work.action not in (RESTORE, TIDY),
            }
        ],
    }
    if archive is not None and archive.credentials_secret_ref is not None:
        container["envFrom"] = [{"secretRef": {"name": archive.credentials_secret_ref.name}}]
    account = archive.service_account_name if archive is not None else None
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": account is not None,
        "securityContext": _user(run),
        "containers": [container],
        "volumes": [
            {
                "name": "shared-checkpoints",
                "persistentVolumeClaim": {"claimName": run.spec.checkpoint.shared.claim_name},
            }
        ],
    }
    if account is not None:
        pod["serviceAccountName"] = account
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": work.name,
            "namespace": run.namespace,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.RUN_KIND,
                    "name": run.name,
                    "uid": run.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": settings.pod_retries,
            "activeDeadlineSeconds": settings.deadline,
            "ttlSecondsAfterFinished": settings.keep_finished,
            # A pod on a node that is cut off may still write: its successor waits until it has ended.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": list(FINAL_CODES)},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def job_arguments(
    run: RunView,
    archive: ArchiveTier | None,
    work: ArchiveJobStatus,
    settings: ArchiveSettings,
    pinned: tuple[str, ...],
    quarantined: tuple[Save, ...],
) -> list[str]:
    """The command line of its program."""
    assert run.spec is not None
    checkpoint = run.spec.checkpoint
    assert checkpoint is not None
    spared = [word for place in pinned for word in ("--pin", place)]
    for save in quarantined:
        later = "+" if isinstance(save, SavesFrom) else ""
        spared += ["--quarantined", f"a{save.attempt}/step-{save.step}{later}" if save.attempt else str(save.step)]
    if work.action == TIDY:
        assert checkpoint.retention is not None
        where = ["--root", work.path, "--layout", checkpoint.layout, "--format", checkpoint.named_format]
        spared += ["--reached", str(step)] if (step := reached_step(run.status)) else []
        return [_REMOVE, "--run-uid", run.uid, *where, *retention_arguments(checkpoint.retention), *spared]
    assert archive is not None
    words = [work.action.lower(), "--uri", archive.uri, "--run-uid", run.uid]
    if archive.endpoint:
        words += ["--endpoint", archive.endpoint]
    if work.action == LIST:
        return words
    if work.action == PRUNE:
        assert archive.retention is not None
        return [*words, *retention_arguments(archive.retention), *spared]
    words += ["--checkpoint", f"a{work.attempt}/step-{work.step}", "--parallel", str(settings.parallel)]
    if settings.bandwidth:
        words += ["--bandwidth", str(settings.bandwidth)]
    if work.action == RESTORE:
        return [*words, "--into", work.path]
    return [*words, "--source", work.path, "--format", checkpoint.named_format]


def is_removal(arguments: Sequence[str]) -> bool:
    """The command line is that of a job that removes checkpoints, of the shared tier or of the archive."""
    return _REMOVE in arguments[:1]


def options_told(arguments: Sequence[str]) -> frozenset[tuple[str, str]]:
    """The options of a command line, each with the word behind it."""
    return frozenset((option, word) for option, word in pairwise(arguments) if option.startswith("--"))


def retention_arguments(retention: RetentionSpec) -> list[str]:
    """The policy as the program reads it. The two newest stay whatever it says: one of them may turn out to be bad."""
    words = ["--keep-last", str(max(2, retention.keep_last))]
    if retention.keep_every is not None:
        words += ["--keep-every", str(retention.keep_every)]
    if retention.keep_for is not None:
        words += ["--keep-for", f"{parse_duration(retention.keep_for)}s"]
    return words


def _user(run: RunView) -> dict[str, Any]:
    """The gang's user, whose files these are; where the run names none, one without rights."""
    assert run.spec is not None
    theirs = pod_template.section(run.spec.pod_template, "spec", "securityContext")
    kept = ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups")
    user = {key: theirs[key] for key in kept if key in theirs}
    user.setdefault("runAsUser", _NOBODY)
    return {**user, "runAsNonRoot": user["runAsUser"] != 0, "seccompProfile": {"type": "RuntimeDefault"}}
