"""`lockstep bundle`: everything that is known of a run in one file, for whoever has to find out what happened.

What the user may not read, or what is gone, is listed with the reason: a bundle that lacks something says so.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from lockstep import __version__
from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.cli import runs
from lockstep.cli.client import Cluster, Json, Query, core_path, resource_path
from lockstep.cli.errors import CliError
from lockstep.cli.live import readable_nodes
from lockstep.cli.output import note
from lockstep.cli.views import events, explain, history
from lockstep.cli.yaml_text import as_yaml
from lockstep.core.model import assignment as slots
from lockstep.core.model.natural_order import NaturalKey, natural_key
from lockstep.core.model.snapshot import RunView
from lockstep.present.amounts import plural
from lockstep.worker.secrets import SECRET_NAME

MAX_LOG_BYTES = 256 * 1024
"""Of one pod: the end of its log, where the failure is."""
READERS = 16
# In commands: `--hf-token=…`, `export HF_TOKEN=…`, but not `--tokenizer=…`; and https://user:password@host.
_SECRET_TEXT = re.compile(
    r"([\w-]{0,64}(?:secret|token|passw(?:or)?d|api[-_]?key|access[-_]?key)=)[^\s\"']+|(\w{1,20}://)[^\s/@]{1,512}(?=@)",
    re.IGNORECASE,
)
# Bounded, as the lines may be anybody's.
_END = re.compile(rb"lockstep: attempt=(\d{1,9}) .{0,512}?\bend (code|signal)=(\d{1,9}) reason=(\S{1,64})")
_SEEN = re.compile(rb"lockstep: attempt=(\d{1,9}) .{0,512}?\bsees ([^\n]{1,4096})")
_LEFT_OUT = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")  # the latter has all once more
_COLOUR = re.compile("\x1b\\[[0-9;]*m")  # tables have it where somebody looks
REDACTED = "(redacted)"

README = """\
Everything known of the training run {run} at {time}, collected by lockstep {version}.

run.yaml           the object: spec and status (values whose names look secret are left out)
explain.txt        why it waits or stopped, in words: read this first
history.txt        its attempts: what ended each, which rank and node were first, what was done
events.txt         what was said of it and of its pods, oldest first
placement.tsv      rank, slot, incarnation, node, rack, pod
exits.tsv          how the processes of each rank ended, from what the workers wrote and the pods' states
inventories.tsv    which checkpoints each node saw before each attempt, and what it made of them
pods/              the pods as they are
logs/              the end of each pod's log ({tail} lines, at most {most} KiB)
stacks/            what the ranks were doing when a hang was seen
queue.yaml         the queue it is in
MISSING.txt        what could not be read, and why; absent when all could

Look through it before you give it away: commands and logs may hold what their authors put there.
"""


@dataclass
class Bundle:
    """A gzipped tar archive with everything in one folder, written as it is read; and what is missing.

    With the logs of hundreds of pods it would not fit into memory.
    """

    archive: tarfile.TarFile
    folder: str
    time: float
    missing: list[str] = field(default_factory=list)

    def add(self, name: str, content: str | bytes) -> None:
        """Put in a file."""
        data = content.encode(errors="replace") if isinstance(content, str) else content
        entry = tarfile.TarInfo(f"{self.folder}/{name}")
        entry.size, entry.mtime, entry.mode = len(data), int(self.time), 0o600
        self.archive.addfile(entry, io.BytesIO(data))

    def attempt(self, what: str, read: Callable[[], None]) -> None:
        """Read something that may not be there or not be allowed."""
        try:
            read()
        except CliError as error:
            self.missing.append(f"{what}: {error}")


def make(cluster: Cluster, name: str, target: str, tail: int) -> None:
    """Collect and write the bundle, and say where it is. It has its name once it is whole; only its owner reads it."""
    now = time.time()
    path = Path(target or f"{name}-bundle.tar.gz")
    if not path.parent.is_dir():
        raise CliError(f"there is no directory {path.parent}", "name another file with -o")
    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                bundle = Bundle(archive, folder, now)
                collect(bundle, cluster, name, tail)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}", "name another file with -o") from error
    typer.echo(str(path))
    if bundle.missing:
        note(f"{plural(len(bundle.missing), 'thing')} could not be read; MISSING.txt in it says which and why.")


def collect(bundle: Bundle, cluster: Cluster, name: str, tail: int) -> None:
    """Everything into the bundle. Raises CliError when the run itself cannot be read."""
    now = bundle.time
    raw = runs.fetch(cluster, name)
    run = runs.view(raw)
    bundle.add("run.yaml", as_yaml(redacted(raw)))
    bundle.attempt("the assignment", lambda: bundle.add("placement.tsv", _placement(cluster, runs.whole(cluster, run))))
    bundle.add("explain.txt", _lines(explain.explanation(run, None, now)))
    bundle.add("history.txt", _lines(history.listing(run.status, True, now)))
    bundle.attempt("events", lambda: bundle.add("events.txt", _events(cluster, run, now)))
    bundle.attempt("its queue", lambda: bundle.add("queue.yaml", _queue(cluster, run)))
    bundle.attempt("pods", lambda: _add_pods(bundle, cluster, run, tail))
    for stacks in sorted({entry.stacks for entry in run.status.attempts if entry.stacks}):
        bundle.attempt(f"stacks in ConfigMap {stacks}", partial(_add_stacks, bundle, cluster, run, stacks))
    moment, most = to_rfc3339(now), MAX_LOG_BYTES // 1024
    bundle.add("README.txt", README.format(run=run.key, time=moment, version=__version__, tail=tail, most=most))
    if bundle.missing:
        bundle.add("MISSING.txt", "".join(f"{line}\n" for line in sorted(bundle.missing)))


def redacted(value: Any) -> Any:
    """The object without its copies, and without literal values of variables and options whose names look secret."""
    if isinstance(value, Mapping):
        if "value" in value and SECRET_NAME.search(str(value.get("name", ""))):
            return {**value, "value": REDACTED}
        return {key: redacted(held) for key, held in value.items() if key not in _LEFT_OUT}
    if isinstance(value, list):
        return [redacted(held) for held in value]
    if isinstance(value, str):
        return _SECRET_TEXT.sub(lambda found: f"{found[1] or found[2]}{REDACTED}", value)
    return value


def exits_of(log: bytes) -> Iterator[tuple[int, str]]:
    """(attempt, how it ended) from the lines that the worker wrote."""
    for attempt, kind, number, reason in _END.findall(log):
        yield int(attempt), f"{kind.decode()} {int(number)} ({reason.decode(errors='replace')})"


def inventories_of(log: bytes) -> Iterator[tuple[int, str]]:
    """(attempt, the checkpoints that were seen before it) from the lines that the worker wrote."""
    for attempt, seen in _SEEN.findall(log):
        yield int(attempt), seen.decode(errors="replace").replace("\t", " ")


def _placement(cluster: Cluster, run: RunView) -> str:
    assignment, nodes = run.status.assignment, readable_nodes(cluster)
    ranks = slots.slot_ranks(assignment)
    rows = ["rank\tslot\tincarnation\tnode\track\tpod"]
    for slot, node in sorted(enumerate(assignment.nodes), key=lambda item: ranks[item[0]]):
        view, incarnation = nodes.get(node), assignment.incarnations[slot]
        rack = view.labels.get("topology.kubernetes.io/rack", "") if view is not None else ""
        rank = str(ranks[slot]) if ranks[slot] >= 0 else "spare"
        pod = names.pod_name(run.name, run.uid, slot, incarnation)
        rows.append(f"{rank}\t{slot}\t{incarnation}\t{node}\t{rack}\t{pod}")
    return _lines(rows)


def _events(cluster: Cluster, run: RunView, now: float) -> str:
    found = cluster.list(resource_path("/apis/events.k8s.io/v1", run.namespace, "events"))["items"]
    of_pods = f"{run.name}-{run.uid[:5]}-"
    mine = sorted((event for event in found if events.concerns(event, run.uid, of_pods)), key=events.last_seen)
    return _lines(events.listing(mine, now))


def _queue(cluster: Cluster, run: RunView) -> str:
    queue = run.spec.queue if run.spec is not None else names.DEFAULT_QUEUE
    return as_yaml(redacted(cluster.get(resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, queue))))


def _add_pods(bundle: Bundle, cluster: Cluster, run: RunView, tail: int) -> None:
    selector = f"{names.LABEL_RUN_UID}={run.uid}"
    pods = cluster.list(core_path(run.namespace, "pods"), labelSelector=selector)["items"]
    ends = ["slot\tincarnation\tnode\tattempt\tended"]
    seen = ["slot\tincarnation\tnode\tattempt\tcheckpoints"]

    def read(pod: Json) -> tuple[Json, bytes | CliError]:
        try:
            return pod, _log(cluster, run, pod["metadata"]["name"], tail)
        except CliError as error:
            return pod, error

    pods = sorted(pods, key=_place)
    # No more at once than there are readers: while one pod's log is slow, those of all others would pile up.
    with ThreadPoolExecutor(READERS) as readers:
        for pod, log in chain.from_iterable(
            readers.map(read, pods[first : first + READERS]) for first in range(0, len(pods), READERS)
        ):
            name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
            bundle.add(f"pods/{name}.yaml", as_yaml(redacted(pod)))
            place = [labels.get(label, "-") for label in (names.LABEL_SLOT, names.LABEL_INCARNATION)]
            where = "\t".join([*place, pod["spec"].get("nodeName", "")])
            if isinstance(log, CliError):
                bundle.missing.append(f"log of pod {name}: {log}")
            else:
                bundle.add(f"logs/{name}.log", log)
                ends += [f"{where}\t{attempt}\t{how}" for attempt, how in exits_of(log)]
                seen += [f"{where}\t{attempt}\t{what}" for attempt, what in inventories_of(log)]
            ends += [f"{where}\t-\tcontainer: {how}" for how in _terminations(pod)]
    bundle.add("exits.tsv", _lines(ends))
    bundle.add("inventories.tsv", _lines(seen))


def _log(cluster: Cluster, run: RunView, pod: str, tail: int) -> bytes:
    """The end of a log. The limit that the API server offers cuts the end off, so the beginning goes here."""
    query: dict[str, Query] = {"container": names.CONTAINER_NAME, "tailLines": tail}
    kept = b""
    for chunk in cluster.stream(f"{core_path(run.namespace, 'pods', pod)}/log", read_timeout=30.0, **query):
        kept = (kept + chunk)[-MAX_LOG_BYTES:]
    return kept


def _terminations(pod: Json) -> Iterator[str]:
    for status in pod.get("status", {}).get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated")
        if status["name"] == names.CONTAINER_NAME and ended:
            yield f"code {ended.get('exitCode')} ({ended.get('reason', '')}) at {ended.get('finishedAt', '')}"


def _place(pod: Json) -> NaturalKey:
    """To sort by slot and incarnation. Labels are anybody's to set."""
    labels = pod["metadata"]["labels"]
    return natural_key(f"{labels.get(names.LABEL_SLOT)}/{labels.get(names.LABEL_INCARNATION)}")


def _add_stacks(bundle: Bundle, cluster: Cluster, run: RunView, name: str) -> None:
    for key, content in cluster.get(core_path(run.namespace, "configmaps", name)).get("data", {}).items():
        bundle.add(f"stacks/{name}/{Path(key).name}", content)


def _lines(lines: Sequence[str] | Iterator[str]) -> str:
    return "".join(_COLOUR.sub("", line) + "\n" for line in lines)
