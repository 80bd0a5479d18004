"""The run that a batch job means, as a manifest, with a row for each option that says what became of it. Anything
refused: nothing is to be created."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lockstep.api.base import names
from lockstep.api.base.durations import format_duration
from lockstep.api.batch_spec import MOST_CHARACTERS, MOST_OF_A_PATH, MOST_OF_AN_OPTION
from lockstep.core.batch.components import Component
from lockstep.core.batch.containers import first_of, images_of_steps, mounts_of_steps
from lockstep.core.batch.shell import Reader, carried
from lockstep.slurm import signals, times
from lockstep.slurm.handling import IGNORED, MAPPED, REFUSED
from lockstep.slurm.images import image, insides, is_below
from lockstep.slurm.submission import pyxis
from lockstep.slurm.submission.batch import BatchRequest, OptionOutcome, request_of

Json = dict[str, Any]
RACK = "rack"
"""The level of the topology that --switches and the like mean, as most configurations call it."""
_SIGNALS = {number: f"SIG{name}" for name, number in signals.NUMBERS.items()}
_CONDITIONS = {"after": "Started", "afterany": "Finished", "afterok": "Succeeded", "afternotok": "Failed"}
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_HERE = re.compile(r"^(\./+)+")
# As the API has it.
_MOST_NODES = 1024  # by name
_MOST_DEPENDENCIES = 32


class NumberedJob(NamedTuple):
    """The run, or the array, that has a number."""

    name: str
    is_array: bool = False


@dataclass(frozen=True)
class Submitted:
    """What is submitted, by whom, and where: ``directory`` is that of the shell, ``command`` the path of the script's
    file from there; empty: it has none."""

    script: str
    name: str = ""
    arguments: Sequence[str] = ()
    directory: str = ""
    user: str = ""
    uid: int = 0
    gid: int = 0
    host: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What else it depends on. ``queue``: ``spec.batch`` of the queue, as JSON. ``moment`` makes RFC 3339 of a time,
    and ``job`` knows who has a number; both raise ValueError."""

    queue: Mapping[str, Any]
    moment: Callable[[str, str], str]
    job: Callable[[str], NumberedJob]
    reader: Reader


class WantedRun(NamedTuple):
    """``array``: its indices and width, as typed; empty: it is one run."""

    manifest: Json
    rows: Sequence[OptionOutcome]
    array: str = ""

    @property
    def refusals(self) -> list[OptionOutcome]:
        """Why it is not submitted."""
        return [row for row in self.rows if row.handling == REFUSED]

    @property
    def notices(self) -> list[OptionOutcome]:
        """What has no effect here."""
        return [row for row in self.rows if row.handling == IGNORED]


def wanted(
    request: BatchRequest,
    rows: Sequence[OptionOutcome],
    submitted: Submitted,
    around: Surroundings,
    components: Sequence[Component] = (),
) -> WantedRun:
    """The manifest, which is whole where nothing is refused."""
    told = _Told(list(rows))
    spec = {
        **_size(request, told),
        **_order(request, told, submitted, around),
        **_limits(request, told, around),
        **_pods(request, told, submitted, around),
    }
    spec["launcher"] = {"type": "Slurm", "batch": _batch(request, told, submitted, spec, components)}
    stem = request.job_name or posixpath.splitext(posixpath.basename(submitted.name))[0]
    metadata: Json = {"generateName": f"{_as_name(stem)}-", **_marks(request, told)}
    manifest = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": metadata, "spec": spec}
    return WantedRun(manifest, told.rows, request.array)


class _Told:
    """Rows in the making."""

    def __init__(self, rows: list[OptionOutcome]) -> None:
        self.rows = rows

    def say(self, option: str, handling: str, words: str, value: str = "") -> None:
        """In the place of what the table says of the option."""
        at = next((index for index, row in enumerate(self.rows) if row.option == option), None)
        if at is None:
            self.rows.append(OptionOutcome(option, value, handling, words))
        elif self.rows[at].handling != REFUSED:
            self.rows[at] = OptionOutcome(option, value or self.rows[at].value, handling, words)


def _size(request: BatchRequest, told: _Told) -> Json:
    spec: Json = {"nodes": request.most_nodes}
    least = 1 if request.survives_node_loss else request.nodes
    if least < request.most_nodes:
        spec["elastic"] = {"min": least}
    if request.gpus_per_node is not None:
        spec["gpusPerNode"] = request.gpus_per_node
    named = list(dict.fromkeys(request.nodelist))
    placement: Json = {
        "gpuTypes": list(request.gpu_types),
        "topology": _topology(request),
        "nodes": named,
        "excludeNodes": list(dict.fromkeys(request.exclude)),
    }
    for option, nodes in (("--nodelist", named), ("--exclude", placement["excludeNodes"])):
        if len(nodes) > _MOST_NODES:
            told.say(option, REFUSED, f"names {len(nodes)} nodes, and at most {_MOST_NODES} are looked for by name")
    if 0 < len(named) < request.most_nodes:
        words = f"names {len(named)} of {request.most_nodes} nodes; here they are the only ones: name all"
        told.say("--nodelist", REFUSED, words)
    kept = {name: value for name, value in placement.items() if value}
    return {**spec, **({"placement": kept} if kept else {})}


def _topology(request: BatchRequest) -> list[Json]:
    if request.contiguous:
        return [{"level": RACK, "policy": "Contiguous", "mode": "Required"}]
    if request.switches is not None:
        must = request.switches == 1 and request.switches_wait is None
        return [{"level": RACK, "policy": "Pack", "mode": "Required" if must else "Preferred"}]
    return [{"level": RACK, "policy": "Pack", "mode": "Preferred"}] if request.segment is not None else []


def _order(request: BatchRequest, told: _Told, submitted: Submitted, around: Surroundings) -> Json:
    spec: Json = {"queue": request.partitions[0]} if request.partitions else {}
    if request.qos:
        spec["priorityClassName"] = request.qos
    if request.nice:
        spec["nice"] = min(request.nice, 100_000)
    if request.hold:
        spec["suspend"] = True
    if request.kill_on_invalid_dependency:
        spec["onUnsatisfiable"] = "Fail"
    for option, text, name in (("--begin", request.begin, "notBefore"), ("--deadline", request.deadline, "deadline")):
        try:
            spec |= {name: around.moment(option, text)} if text else {}
        except ValueError as error:
            told.say(option, REFUSED, str(error))
    return spec | _dependencies(request, told, submitted, around)


def _dependencies(request: BatchRequest, told: _Told, submitted: Submitted, around: Surroundings) -> Json:
    wanted = request.dependency
    if wanted is None:
        return {}
    spec: Json = {}
    if wanted.singleton:
        name = request.job_name or submitted.name or "sbatch"
        spec["singleton"] = f"{submitted.user}.{name}".strip(".")[:63]
    for one in wanted.jobs:
        number, _, index = one.job.partition("_")
        try:
            if one.minutes:
                raise ValueError(f"{one.condition}:{one.job}+{one.minutes}: leave out what follows the +")
            job = around.job(number)
            if one.condition == "aftercorr":
                if not job.is_array or not request.array or "afterCorr" in spec or index:
                    raise ValueError("aftercorr is for an array after one other array")
                spec["afterCorr"] = job.name
                continue
            if job.is_array and (not index or index == "*"):
                words = f"{number} is an array, and runs wait for runs: name its tasks, as {one.condition}:{number}_0"
                raise ValueError(words)
            if index and not job.is_array:
                raise ValueError(f"{number} is no array")
            name = f"{job.name}-{int(index)}" if index else job.name
            if any(known["name"] == name for known in spec.get("dependsOn", ())):
                raise ValueError(f"{one.job} is named twice; one condition for each")
            if len(spec.get("dependsOn", ())) == _MOST_DEPENDENCIES:
                raise ValueError(f"a job waits for {_MOST_DEPENDENCIES} others at most; let it wait for the last ones")
            spec.setdefault("dependsOn", []).append({"name": name, "condition": _CONDITIONS[one.condition]})
        except ValueError as error:
            told.say("--dependency", REFUSED, str(error))
    return spec


def _limits(request: BatchRequest, told: _Told, around: Surroundings) -> Json:
    spec: Json = {}
    limited = request.time_limit not in (None, times.UNLIMITED)
    if limited:
        spec["timeLimit"] = format_duration(request.time_limit or 0)
    if request.time_min and limited:
        spec["minTimeLimit"] = format_duration(request.time_min)
    elif request.time_min:
        told.say("--time-min", REFUSED, "is a lower bound of --time; write that too, or leave it out")
    if request.notice is not None:
        at_limit: Json = {"leadTime": format_duration(max(1, request.notice.lead))}
        if request.requeue:
            at_limit["action"] = "Requeue"
        spec["onTimeLimit"] = at_limit
        if request.notice.signal not in _SIGNALS:
            told.say("--signal", REFUSED, "real-time signals are not sent; write one with a name, e.g. USR1")
    if request.requeue is False:
        spec["recovery"] = {"maxRestarts": 0}
    return spec


def _pods(request: BatchRequest, told: _Told, submitted: Submitted, around: Surroundings) -> Json:
    queue = around.queue
    spec: Json = {}
    image = _image(request, told, submitted, queue)
    if image:
        spec["image"] = image
    volumes = [dict(volume) for volume in queue.get("volumes", ())]
    if volumes:
        spec["volumes"] = volumes
    if queue.get("scriptCheckpointClaim"):
        spec["checkpoint"] = {"shared": {"claimName": queue["scriptCheckpointClaim"]}}
        if request.notice is not None:  # of any stop, as without a tier
            spec["checkpoint"]["gracePeriod"] = format_duration(max(1, request.notice.lead))
    shell = carried(request.export, request.export_file, submitted.environ, queue.get("carry", ()), around.reader)
    for row in shell.rows:
        if row.value and row.value != "ALL":
            told.rows.append(row)
        else:
            told.say(row.option, row.handling, row.words, row.value)
    own = [dict(variable) for variable in queue.get("env", ()) if variable["name"] not in shell.variables]
    env = [*own, *({"name": name, "value": value} for name, value in shell.variables.items())]
    if env:
        spec["env"] = env
    if request.features:
        selector = dict(_label(feature) for feature in request.features)
        spec["podTemplate"] = {"spec": {"nodeSelector": selector}}
        words = ", ".join(f"{key}={value}" for key, value in selector.items())
        told.say("--constraint", MAPPED, f"nodes with the labels {words}")
    for inside in insides(request.mounts):
        if not is_on_a_volume(inside, spec):
            told.say("--container-mounts", REFUSED, f"{inside} is on no volume; {_where(spec)}")
    told.rows += mounts_of_steps(submitted.script, _mounts(spec), _where(spec))
    return spec


def labels_of(constraint: str) -> dict[str, str]:
    """The labels that ``-C`` asks of nodes; none of what is refused."""
    request, _ = request_of([("constraint", constraint)])
    return dict(map(_label, request.features))


def _label(feature: str) -> tuple[str, str]:
    key, equals, value = feature.partition("=")
    return key, value if equals else "true"


def _image(request: BatchRequest, told: _Told, submitted: Submitted, queue: Mapping[str, Any]) -> str:
    """What was said, what the script's first step says, or the queue's."""
    try:
        said = image(request.image) if request.image else pyxis.hoisted(submitted.script)
    except ValueError as error:
        told.say("--container-image", REFUSED, str(error), request.image)
        return ""
    if said and not request.image:
        told.say("--container-image", MAPPED, "image, of the script's first srun that names one", said)
    found = said or str(queue.get("image") or "")
    if not found:
        words = "no image is named; write #SBATCH --container-image=IMAGE, or have the queue's batch.image name one"
        told.say("--container-image", REFUSED, words)
    else:
        told.rows += images_of_steps(submitted.script, found, said=bool(request.image))
    return found


def _batch(
    request: BatchRequest, told: _Told, submitted: Submitted, spec: Json, components: Sequence[Component]
) -> Json:
    if len(submitted.script) > MOST_CHARACTERS:
        words = f"it has {len(submitted.script)} characters, and at most {MOST_CHARACTERS} are carried to the nodes"
        told.say("script", REFUSED, f"{words}; put what is large into a file on a volume and have the script read that")
    batch: Json = {
        "script": submitted.script,
        "arguments": list(submitted.arguments),
        "name": posixpath.basename(submitted.name)[:255],
        "command": _command(submitted),
        "directory": _directory(request, told, submitted, spec),
        "submitDirectory": submitted.directory if is_on_a_volume(submitted.directory, spec) else "",
        "host": submitted.host[:253],
        "user": submitted.user[:253],
        "uid": submitted.uid,
        "gid": submitted.gid,
        "options": _options(request, told),
        "ntasks": request.ntasks,
        "memoryMiB": request.memory,
        "components": [each.nodes for each in components],
        "componentTasks": [each.ntasks or 0 for each in components] if any(each.ntasks for each in components) else [],
        "signal": _SIGNALS.get(request.notice.signal) if request.notice is not None else None,
        "output": request.output,
        "error": request.error,
        "input": request.input,
        "append": bool(request.append),
    }
    if batch["submitDirectory"] == batch["directory"]:
        batch["submitDirectory"] = ""
    _name_lost_files(request, told, batch["directory"], spec)
    return {name: value for name, value in batch.items() if value or name == "script"}


def _options(request: BatchRequest, told: _Told) -> dict[str, str]:
    """As they were typed, but for what is the script."""
    options = {name: value for name, value in request.said if name != "wrap"}
    for name, value in options.items():
        if len(value) > MOST_OF_AN_OPTION:
            words = f"it has {len(value)} characters, and at most {MOST_OF_AN_OPTION} are carried to the nodes"
            told.say(f"--{name}", REFUSED, f"{words}; write a shorter one")
    return options


def _command(submitted: Submitted) -> str:
    """The path of the script's file, as links lead there; empty: it has none that could be written down."""
    command = _HERE.sub("", submitted.command, count=1)
    path = posixpath.join(submitted.directory, command) if command else ""
    return path if path.startswith("/") and len(path) <= MOST_OF_A_PATH else ""


def _directory(request: BatchRequest, told: _Told, submitted: Submitted, spec: Json) -> str:
    """Where the script starts. Empty: no volume has where it was submitted."""
    said = request.chdir or request.image_workdir
    if said:
        path = posixpath.normpath(posixpath.join(submitted.directory or "/", said))
        if not is_on_a_volume(path, spec):
            told.rows.append(
                OptionOutcome("path", path, IGNORED, f"is on no volume: the image has to have it; {_where(spec)}")
            )
        return path
    if is_on_a_volume(submitted.directory, spec):
        return submitted.directory
    words = f"is on no volume: the script starts in the image's own directory; {_where(spec)}"
    told.rows.append(OptionOutcome("path", submitted.directory or ".", IGNORED, words))
    return ""


def _name_lost_files(request: BatchRequest, told: _Told, directory: str, spec: Json) -> None:
    for option, pattern in (("--output", request.output or ""), ("--error", request.error)):
        path = posixpath.normpath(posixpath.join(directory or "/", pattern or "slurm-%j.out"))
        if (pattern or option == "--output") and not path.startswith("/dev/") and not is_on_a_volume(path, spec):
            words = "is on no volume: what the script prints is in lockstep logs alone"
            told.rows.append(OptionOutcome("path", pattern or "slurm-%j.out", IGNORED, words))
    if request.input and not request.input.startswith("/dev/"):
        path = posixpath.normpath(posixpath.join(directory or "/", request.input))
        if not is_on_a_volume(path, spec):
            told.say("--input", REFUSED, f"{path} is on no volume; {_where(spec)}")


def is_on_a_volume(path: str, spec: Mapping[str, Any]) -> bool:
    """Whether a volume of the run has it, as far as mount paths tell."""
    return is_below(path, _mounts(spec))


def _mounts(spec: Mapping[str, Any]) -> list[str]:
    return [str(volume["mountPath"]) for volume in spec.get("volumes", ())]


def _where(spec: Mapping[str, Any]) -> str:
    mounts = _mounts(spec)
    return f"there are {first_of(mounts)}" if mounts else "the queue's batch.volumes names none"


def _marks(request: BatchRequest, told: _Told) -> Json:
    """What is for people and for other programs."""
    labels = {"slurm/account": request.account} if _LABEL.fullmatch(request.account) else {}
    if request.account and not labels:
        told.say(
            "--account", REFUSED, f"{request.account} is no label of Kubernetes; use letters, digits, '-', '_', '.'"
        )
    said = {
        "slurm/comment": request.comment,
        "slurm/mail-type": ",".join(request.mail_types),
        "slurm/mail-user": request.mail_user,
    }
    annotations = {name: value for name, value in said.items() if value}
    both = {"labels": labels, "annotations": annotations}
    return {name: value for name, value in both.items() if value}


def _as_name(text: str) -> str:
    """A name for objects, with room for what is put behind it."""
    name = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
    return name[: names.MAX_RUN_NAME - 6].strip("-") or "sbatch"
