"""``srun``'s step: its tasks with their variables, and where their streams go."""

from __future__ import annotations

import itertools
import os
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from lockstep.slurm import images, patterns
from lockstep.slurm.environment import SlurmJob, exported, step_environment, task_environment, without_steps
from lockstep.slurm.layout import IDLE, MOST_TASKS_OF_NODE, InUse, Layout, LayoutError
from lockstep.slurm.reports import label
from lockstep.slurm.sizes import plural
from lockstep.slurm.srun import Step, counted, placed
from lockstep.worker.shims.request import EVERYBODY, NOBODY, ShimPart, ShimRequest, ShimTask

NULL = "/dev/null"
_PRESERVED = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS")  # by -E


class OutputSink(NamedTuple):
    """Where srun itself writes what it gets. ``path`` empty: its own stream. ``only``: the one task that is heard."""

    path: str = ""
    append: bool = False
    only: int = -1


class ComponentOutlets(NamedTuple):
    """Where the streams of a component go, whose tasks are ``first`` and what follows."""

    first: int
    stdout: OutputSink
    stderr: OutputSink


class Call(NamedTuple):
    """A step as srun asks for it, and how srun is to behave meanwhile."""

    request: ShimRequest
    stdout: OutputSink
    stderr: OutputSink
    stdin: str  # path of a file to read; empty: srun's own
    nodes: Mapping[int, str]  # name of the node of each task
    kill_on_bad_exit: bool
    wait: int  # seconds after the first end; 0: for ever
    time_limit: int  # seconds; 0: none
    lines: Sequence[str]  # to say first, on stderr
    others: Sequence[ComponentOutlets] = ()  # of the components behind the first


class Place(NamedTuple):
    """Where srun runs and what its step is called."""

    step: int
    address: str
    port: int
    cwd: str


class Laid(NamedTuple):
    """Where the components of a step have their tasks. ``lines``: what srun says of it."""

    layouts: Sequence[Layout]
    gpus: Sequence[Optional[Sequence[int]]]  # how many of each node of a component; None: it shares all
    lines: Sequence[str]

    def nodes(self, job: SlurmJob) -> List[str]:
        """Names of those that the step has, in the job's order."""
        used = {index for layout in self.layouts for index in layout.nodes}
        return [node for index, node in enumerate(job.nodes) if index in used]

    def gpus_of_nodes(self, job: SlurmJob) -> Dict[str, int]:
        """What all components together want, by name of the node; empty: nothing for themselves. It may be more than a
        node has, where others use those on which the components would have room."""
        found: Dict[str, int] = {}
        for layout, gpus in zip(self.layouts, self.gpus):  # noqa: B905, strict is younger than Python 3.8
            for index, count in zip(layout.nodes, gpus or ()):  # noqa: B905
                found[job.nodes[index]] = found.get(job.nodes[index], 0) + count
        return found


def laid_out(steps: Sequence[Step], job: SlurmJob, words: Sequence[Sequence[str]], used: InUse = IDLE) -> Laid:
    """On nodes that have room, if so many have. ``words``: of each node of the job, by rank, all that mean it.
    ``used``: by other steps. Raises LayoutError with what srun says."""
    lines: List[str] = []
    layouts: List[Layout] = []
    gpus: List[Optional[Sequence[int]]] = []
    held: Dict[str, int] = {}  # GPUs, by the components before
    for step in steps:
        members = _members(step, job)
        count = counted(step, len(members), job.gpus)
        notices = [*step.notices, *images.of_step(step.image, step.mounts, job.image, job.mounts)]
        lines += [notice for notice in notices if notice not in lines]
        lines += [f"srun: warning: {warning}" for warning in count.warnings] if not step.quiet else []
        named = [words[member] for member in members]
        found = placed(step, count, named)
        if max(found.counts) > MOST_TASKS_OF_NODE:
            said = f"{max(found.counts)} tasks on a node, where {MOST_TASKS_OF_NODE} run at most"
            raise LayoutError(f"Unable to create step: {said}; ask for more nodes by -N, or for fewer tasks by -n")
        wanted = step.gpus_asked.wanted(found.counts, job.gpus)
        if held or used != IDLE:
            busy = _busy([job.nodes[member] for member in members], wanted, job.gpus, used, held)
            found = placed(step, count, named, busy)
        layouts.append(Layout([members[node] for node in found.nodes], found.tasks))
        gpus.append(wanted)
        for index, each in zip(layouts[-1].nodes, wanted or ()):  # noqa: B905, strict is younger than Python 3.8
            held[job.nodes[index]] = held.get(job.nodes[index], 0) + each
    if used == IDLE and max(held.values(), default=0) > job.gpus:
        raise LayoutError(
            f"Unable to create step: its components need more than the {plural(job.gpus, 'GPU')} of a node"
        )
    return Laid(layouts, gpus, lines)


def _busy(
    nodes: Sequence[str], wanted: Optional[Sequence[int]], have: int, used: InUse, held: Mapping[str, int]
) -> Callable[[int], Tuple[int, ...]]:  # fmt: skip
    """Of each of these nodes, for a component that wants so many GPUs of the nodes it will have: those first that have
    enough, and that no step uses all of."""
    if not wanted or not max(wanted):
        return lambda node: (used.steps.get(nodes[node], 0),)

    def busy(node: int) -> Tuple[int, ...]:
        name = nodes[node]
        free = have - len(used.gpus.get(name, ())) - held.get(name, 0)
        return ((free < max(wanted)) + (free < min(wanted)), used.sharing.get(name, 0))

    return busy


def call(
    steps: Sequence[Step], job: SlurmJob, laid: Laid, environ: Mapping[str, str], place: Place,
    devices: Mapping[str, Sequence[int]],
) -> Call:  # fmt: skip
    """``devices``: the GPUs that ``gpus_of_nodes`` asks for. Raises LayoutError with what srun says."""
    parts: List[ShimPart] = []
    nodes: Dict[int, str] = {}
    layouts = laid.layouts
    left = {node: list(found) for node, found in devices.items()}
    total = sum(layout.total for layout in layouts)
    first = first_node = 0
    for step, layout, gpus in zip(steps, layouts, laid.gpus):  # noqa: B905, strict is younger than Python 3.8
        own: List[Optional[Sequence[int]]] = [None] * len(layout.nodes)
        for node, count in enumerate(gpus or ()):
            free = left[job.nodes[layout.nodes[node]]]
            own[node], free[:count] = free[:count], []
        parts += _parts(step, layout, job, environ, place, first, first_node, own)
        nodes.update(_nodes(layout, job, first))
        first, first_node = first + layout.total, first_node + len(layout.nodes)
    leading = steps[0]
    labels = {task: label(task, total) for task in range(total)} if leading.label else None
    stdin = EVERYBODY if not leading.input or leading.input.lower() == "all" else NOBODY
    path = ""
    if leading.input.isdigit() and int(leading.input) < total:
        stdin = leading.input
    elif stdin == NOBODY and leading.input.lower() != "none" and not patterns.is_per_task(leading.input):
        stdin, path = EVERYBODY, patterns.file_name(leading.input, _names(job, place))
    cwd = os.path.join(place.cwd, leading.chdir) if leading.chdir else place.cwd
    request = ShimRequest(parts, cwd=cwd, stdin=stdin, labels=labels)
    first = 0
    outlets = []
    for step, layout in zip(steps, layouts):  # noqa: B905, strict is younger than Python 3.8
        stdout = _sink(step.output, step, job, place, total)
        outlets.append(
            ComponentOutlets(first, stdout, _sink(step.error, step, job, place, total) if step.error else stdout)
        )
        first += layout.total
    return Call(
        request, outlets[0].stdout, outlets[0].stderr, path, nodes, any(step.kill_on_bad_exit for step in steps),
        leading.wait, leading.time_limit or 0, laid.lines, outlets[1:],
    )  # fmt: skip


def _members(step: Step, job: SlurmJob) -> List[int]:
    """Nodes of the job that this component may use."""
    if not job.components and not step.het_group:
        return list(range(len(job.nodes)))
    starts = [0, *itertools.accumulate(job.components or [len(job.nodes)])]
    if step.group + 1 >= len(starts):
        raise LayoutError(f"Attempt to run a job step with het group value of {step.group}, but the job has "
                          f"{len(starts) - 1} of them")  # fmt: skip
    return list(range(starts[step.group], starts[step.group + 1]))


def _parts(
    step: Step, layout: Layout, job: SlurmJob, environ: Mapping[str, str], place: Place, first: int,
    first_node: int, devices: Sequence[Optional[Sequence[int]]],
) -> List[ShimPart]:  # fmt: skip
    """Of a component, whose tasks and nodes are counted on from those before it."""
    base = exported(without_steps(environ), step.export)
    base.update(
        step_environment(job, place.step, layout, place.address, place.port, step.cpus_per_task, step.cpus_per_gpu)
    )
    if step.own_name:
        base["SLURM_JOB_NAME"] = step.own_name
    if step.preserve_env:
        base.update({name: environ[name] for name in _PRESERVED if name in environ})
    parts = []
    for node, ranks in enumerate(layout.tasks):
        tasks = []
        for local, rank in enumerate(ranks):
            own = task_environment(job, layout, node, local, step.gpus_asked, devices[node])
            own["SLURM_PROCID"], own["SLURM_NODEID"] = str(first + rank), str(first_node + node)
            own["SLURM_GTIDS"] = ",".join(str(first + each) for each in ranks)
            names = _names(job, place)._replace(
                node=job.nodes[layout.nodes[node]], node_index=node, task=rank, user=job.user
            )
            stdout, stderr = _own_file(step.output, names), _own_file(step.error or step.output, names)
            tasks.append(ShimTask(first + rank, own, stdout, stderr, _own_file(step.input, names), step.append is True))
        parts.append(ShimPart(layout.nodes[node], tasks, argv=step.command, env=base))
    return parts


def _own_file(pattern: str, names: patterns.Names) -> str:
    """The file of one task on its node; empty: it has none."""
    if pattern.lower() == "none":
        return NULL
    return patterns.file_name(pattern, names) if pattern and patterns.is_per_task(pattern) else ""


def _sink(pattern: str, step: Step, job: SlurmJob, place: Place, total: int) -> OutputSink:
    if not pattern or pattern.lower() in ("all", "none") or pattern.startswith("-") or patterns.is_per_task(pattern):
        return OutputSink()
    if pattern.isdigit() and int(pattern) < total:
        return OutputSink(only=int(pattern))
    return OutputSink(patterns.file_name(pattern, _names(job, place)), step.append is True)


def _names(job: SlurmJob, place: Place) -> patterns.Names:
    array = job.array
    return patterns.Names(
        job.id, array.job if array else 0, array.task if array else patterns.NO_VAL, place.step, job.name, job.restarts
    )


def _nodes(layout: Layout, job: SlurmJob, first: int) -> Dict[int, str]:
    placed_tasks = zip(layout.nodes, layout.tasks)  # noqa: B905, strict is younger than Python 3.8
    return {first + rank: job.nodes[index] for index, ranks in placed_tasks for rank in ranks}
