"""Arrays as Slurm's users write and read them: ``--array 0-99%8``, ``sweep_[3-5]``, one row for all that wait."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import typer

from lockstep.api.base import names
from lockstep.api.base.indices import parse_indices
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster, Json, resource_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.core.arrays.members import index_of, read_ranges, split_run_name
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ShownReason, WaitReason
from lockstep.core.model.snapshot import RunView

_TRIES = 5
_RANGES_SHOWN = 40
_GENERATED = 6  # a dash and what the API server puts behind a generateName
_TARGET = re.compile(r"(?P<name>[^_\s]+)_(?:\[(?P<ranges>[^\]]+)\]|(?P<index>\d+))")
OUTCOMES = ("succeeded", "failed", "cancelled", "running", "pending")


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits of a set: its indices without nodes, and the runs of those that have one, the first in line first."""

    view: RunSetView
    indices: frozenset[int]
    waiting: tuple[RunView, ...]

    @property
    def name(self) -> str:
        """``sweep_[8-99%8]``, as squeue writes it."""
        width = self.view.spec.max_running if self.view.spec is not None else None
        return f"{self.view.name}_[{shortened(self.indices)}{'' if width is None else f'%{width}'}]"

    @property
    def state(self) -> tuple[str, str]:
        """State and reason: those of the run that is first in line, else of the set."""
        spec, status = self.view.spec, self.view.status
        if spec is not None and spec.suspend:
            return "Suspended", "Suspended"
        if self.waiting:
            return runs.state_of(self.waiting[0])
        said = find(status, "Progressing")
        if said is not None and said.status == "False":
            return "Pending", said.reason
        return "Pending", WaitReason.MAX_RUNNING if status.state else ShownReason.NOT_SEEN_YET


def sets_path(namespace: str | None, name: str = "") -> str:
    """The path of the sets of a namespace (None: of all), or of one set."""
    return resource_path(f"/apis/{names.API_VERSION}", namespace, names.RUN_SETS, name)


def is_set(document: object) -> bool:
    """Whether it is the manifest of a set."""
    return isinstance(document, dict) and (document.get("kind"), document.get("apiVersion")) == (
        names.RUN_SET_KIND,
        names.API_VERSION,
    )


# -- submit -------------------------------------------------------------------------------------


def wrapped(manifest: Json, array: str) -> Json:
    """The set that gives every index of ``array`` (``0-99%8``) a run like ``manifest``. Raises UsageError."""
    indices, percent, width = array.partition("%")
    if percent and not width.isdecimal():
        raise UsageError(f"--array {array} has no width behind the %", "write --array 0-99%8")
    if percent and not int(width):  # no limit to Slurm, and no start to maxRunning
        raise UsageError(f"--array {array} would let nothing start", f"--array {indices} has no width; -H holds it")
    try:
        parse_indices(indices)
    except ValueError as error:
        raise UsageError(f"--array {error}") from error
    spec, metadata = dict(manifest.get("spec") or {}), dict(manifest["metadata"])
    if "generateName" in metadata:
        metadata["generateName"] = f"{metadata['generateName'][: names.MAX_RUN_SET_NAME - _GENERATED].rstrip('-')}-"
    theirs = {key: text for key, text in (metadata.get("annotations") or {}).items() if not _is_ours(key)}
    both = {"labels": metadata.get("labels") or {}, "annotations": theirs}
    template = {"metadata": {part: words for part, words in both.items() if words}, "spec": spec}
    ours: Json = {"indices": indices, **({"maxRunning": int(width)} if percent else {})}
    for field in ("afterCorr", "suspend"):
        if field in spec:
            ours[field] = spec.pop(field)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": metadata,
        "spec": {**ours, "template": {part: value for part, value in template.items() if value}},
    }


def put_schedule(manifest: Json, fields: Mapping[str, object]) -> None:
    """Have the manifest of a set say what flags say of a run."""
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not fields or not isinstance(spec, dict) or not isinstance(template, dict):
        return
    ours = {field: value for field, value in fields.items() if field in ("afterCorr", "suspend")}
    theirs = {field: value for field, value in fields.items() if field not in ours}
    manifest["spec"] = spec | ours | {"template": template | {"spec": (template.get("spec") or {}) | theirs}}


def refuse_outside_of_arrays(manifest: Json) -> None:
    """A single run comes after no array."""
    spec = manifest.get("spec")
    if isinstance(spec, dict) and "afterCorr" in spec:
        raise UsageError("--dependency aftercorr is for arrays", "add --array, or write afterok:RUN for one run")


# -- cancel, suspend, resume --------------------------------------------------------------------


def change(cluster: Cluster, target: str, spec: Mapping[str, object], done: str, form: str) -> bool:
    """Change a set, or cancel some of its indices; False when ``target`` means no set. Raises CliError."""
    found = _TARGET.fullmatch(target)
    if found is not None:
        if "cancel" not in spec:
            raise UsageError(f"{target} names indices, which can only be cancelled", "name single runs, e.g. sweep-3")
        _cancel_indices(cluster, found["name"], found["ranges"] or found["index"], form)
        return True
    raw = _fetch_if_allowed(cluster, target)
    if raw is not None:
        change_set(cluster, raw, spec, done, form)
        return True
    single = split_run_name(target)
    if single is not None and "cancel" in spec and _fetch_if_allowed(cluster, single[0]) is not None:
        _cancel_indices(cluster, single[0], str(single[1]), form)
        return True
    return False


def fetch(cluster: Cluster, name: str) -> Json | None:
    """One set of the cluster's namespace; None when there is none, or no such kind."""
    try:
        return cluster.get(sets_path(cluster.namespace, name))
    except ApiServerError as error:
        if error.status == 404:
            return None
        raise


def _fetch_if_allowed(cluster: Cluster, name: str) -> Json | None:
    """The same for a name that need not be an array's: rights on arrays that lack are then nobody's concern."""
    try:
        return fetch(cluster, name)
    except ApiServerError as error:
        if error.status == 403:
            return None
        raise


def selected(cluster: Cluster, selector: str) -> list[Json]:
    """Sets of the cluster's namespace that have the labels; says so where they may not be read."""
    try:
        return cluster.list(sets_path(cluster.namespace), labelSelector=selector)["items"]  # type: ignore[no-any-return]
    except ApiServerError as error:
        if error.status == 403:
            output.note(f"arrays are left out: {error}")
        elif error.status != 404:
            raise
        return []


def why_absent(cluster: Cluster, name: str) -> CliError | None:
    """Why there is no run of this name, where a set has to do with it."""
    if "_" in name:
        return CliError(
            f"{name} is no name of a run",
            "the run of index 7 of sweep is sweep-7; only lockstep cancel takes sweep_[3-5]",
        )
    single = split_run_name(name)
    for set_name in (name, single[0] if single is not None else ""):
        raw = _fetch_if_allowed(cluster, set_name) if set_name else None
        view = parse_run_set(raw) if raw is not None else None
        if view is None or view.spec is None:
            continue
        if set_name == name:
            return CliError(
                f"{name} is a {names.RUN_SET_KIND}",
                f"name one of its runs; lockstep status {name} shows them; cancel, suspend and resume take it whole",
            )
        index = single[1] if single is not None else 0
        if index in parse_indices(view.spec.indices):
            word = next((word for word in OUTCOMES if index in indices_of(view)[word]), "pending")
            return CliError(
                f"index {index} of {set_name} has no run, it is {word}", f"lockstep status {set_name} shows them all"
            )
    return None


def _cancel_indices(cluster: Cluster, name: str, words: str, form: str) -> None:
    try:
        wanted = parse_indices(words)
    except ValueError as error:
        raise UsageError(f"{name}_[{words}]: {error}") from error
    for attempt in range(_TRIES):
        raw = fetch(cluster, name)
        if raw is None:
            raise CliError(f"there is no {names.RUN_SET_KIND} {name} in namespace {cluster.namespace}")
        view = parse_run_set(raw)
        absent = wanted - parse_indices(view.spec.indices) if view.spec is not None else frozenset[int]()
        if absent:
            raise CliError(f"{name} has no index {shortened(absent)}", f"it has {raw['spec']['indices']}")
        before = raw["spec"].get("cancelIndices") or ""
        try:
            after = format_ranges(wanted | (parse_indices(before) if before else frozenset()))
        except ValueError as error:
            raise CliError(f"spec.cancelIndices of {name} cannot be read: {error}", "mend it first") from error
        body = {
            "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
            "spec": {"cancelIndices": after},
        }
        try:
            changed = cluster.merge_patch(sets_path(cluster.namespace, name), body)
        except ApiServerError as error:
            if error.status == 409 and attempt + 1 < _TRIES:
                continue
            raise
        _show(changed, form, f"cancelled {shortened(wanted)}")
        return


def change_set(cluster: Cluster, raw: Json, spec: Mapping[str, object], done: str, form: str) -> None:
    """Change the spec of one set, unless it has finished."""
    view = parse_run_set(raw)
    if is_true(view.status, "Finished"):
        output.note(f"{view.name} has finished already ({view.status.reason}); nothing to change.")
        return
    _show(cluster.merge_patch(sets_path(cluster.namespace, view.name), {"spec": dict(spec)}), form, done)


def _show(raw: Json, form: str, done: str) -> None:
    if form == "name":
        typer.echo(f"{output.object_name(raw)} {done}")
    else:
        output.print_object(raw, form)


# -- queue and status ---------------------------------------------------------------------------


def listed(cluster: Cluster, *, everywhere: bool, selector: str, queue: str) -> list[Json]:
    """Sets that have not finished; none where the kind is not there or may not be read."""
    query = {"labelSelector": selector} if selector else {}
    try:
        found = cluster.list(sets_path(None if everywhere else cluster.namespace), **query)["items"]
    except ApiServerError as error:
        if error.status in (403, 404):
            return []
        raise
    views = [(parse_run_set(raw), raw) for raw in found]
    return [raw for view, raw in views if not is_true(view.status, "Finished") and queue in ("", _queue_of(view))]


def folded(views: Sequence[RunView], sets: Iterable[RunSetView]) -> tuple[list[RunView], list[Pending]]:
    """Runs to be shown each by itself, and what waits of the sets."""
    by_uid = {view.uid: view for view in sets}
    single: list[RunView] = []
    waiting: dict[str, list[RunView]] = {uid: [] for uid in by_uid}
    for run in views:
        owner = by_uid.get(run.set_uid)
        phase = phase_of(run.status, suspended=run.spec is not None and run.spec.suspend)
        belongs = owner is not None and index_of(run) is not None
        if belongs and phase is Phase.PENDING and run.status.state != "Suspended":
            waiting[run.set_uid].append(run)
        else:
            single.append(run)
    rows = []
    for uid, view in by_uid.items():
        shown = {index for run in single if run.set_uid == uid and (index := index_of(run)) is not None}
        left = indices_of(view)["pending"] - shown
        line = sorted(waiting[uid], key=lambda run: (run.status.queue.position or 10**9, index_of(run) or 0))
        left |= {index for run in line if (index := index_of(run)) is not None}
        if left:
            rows.append(Pending(view, frozenset(left), tuple(line)))
    return single, rows


def indices_of(view: RunSetView) -> dict[str, frozenset[int]]:
    """Indices by what became of them, as status has it: ``running`` are all that have a run which has not ended."""
    known = view.status.indices
    found = {word: read_ranges(getattr(known, word)) for word in ("succeeded", "failed", "cancelled")}
    found["running"] = read_ranges(known.active)
    every = parse_indices(view.spec.indices) if view.spec is not None else frozenset[int]()
    found["pending"] = every - frozenset[int]().union(*found.values())
    return found


def show_status(cluster: Cluster, raw: Json, form: str) -> None:
    """Print one page about a set."""
    if form != "text":
        output.print_object(raw, form)
        return
    view = parse_run_set(raw)
    selector = f"{names.LABEL_SET}={view.name}"
    found = cluster.list(runs_path(view.namespace), labelSelector=selector)["items"]
    own = [run for run in map(runs.view, found) if run.set_uid == view.uid]
    output.print_lines(page(view, own))


def sentences(view: RunSetView) -> Iterator[str]:
    """State and reason, why it does not go on, and what was asked for."""
    status, spec = view.status, view.spec
    state = status.state or "Pending"
    yield f"{view.name} is {output.state_word(state)} ({status.reason or ShownReason.NOT_SEEN_YET})."
    if why := why_it_waits(view):
        yield from why.splitlines()
    if status.stop is not None:
        yield f"It has given up: {status.stop.message}."
    if spec is not None:
        width = "as many at once as there are nodes for"
        yield f"Indices {spec.indices}, {width if spec.max_running is None else f'at most {spec.max_running} at once'}."
        if spec.after_corr:
            yield f"Each comes after the same index of {spec.after_corr}."


def why_it_waits(view: RunSetView) -> str:
    """Why it is not accepted or does not go on, a line for each; empty when nothing is in its way."""
    found = (find(view.status, kind) for kind in ("Accepted", "Progressing"))
    return "\n".join(each.message for each in found if each is not None and each.status == "False" and each.message)


def by_outcome(view: RunSetView, holding: Collection[int | None]) -> dict[str, frozenset[int]]:
    """``indices_of``, where only those in ``holding``, which have nodes, count as running."""
    which = indices_of(view)
    running = frozenset(index for index in which["running"] if index in holding)
    which |= {"running": running, "pending": which["pending"] | (which["running"] - running)}
    return {word: which[word] for word in OUTCOMES}


def page(view: RunSetView, own: Sequence[RunView]) -> Iterator[str]:
    """One page: how many and which, why it does not go on, and the runs that have not ended."""
    yield from sentences(view)
    if view.spec is not None:
        holding = {index_of(run) for run in own if run.status.assignment.nodes and not is_true(run.status, "Finished")}
        which = by_outcome(view, holding)
        yield ""
        rows = [[word, str(len(which[word])), format_ranges(which[word])] for word in OUTCOMES]
        yield from output.table(("OUTCOME", "COUNT", "INDICES"), rows)
    active = sorted((run for run in own if not is_true(run.status, "Finished")), key=lambda run: index_of(run) or 0)
    if active:
        yield ""
        rows = [[run.name, *runs.state_of(run), runs.nodes_of(run), run.status.progress.summary] for run in active]
        yield from output.table(("RUN", "STATE", "REASON", "NODES", "STEP"), rows)


def shortened(indices: Iterable[int]) -> str:
    """As ranges, cut where they get long."""
    text = format_ranges(indices)
    return text if len(text) <= _RANGES_SHOWN else f"{text[:_RANGES_SHOWN].rpartition(',')[0]},..."


def _queue_of(view: RunSetView) -> str:
    return view.spec.template.spec.queue if view.spec is not None else ""


def _is_ours(key: str) -> bool:
    return key.startswith(f"{names.GROUP}/")
