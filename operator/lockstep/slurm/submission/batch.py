"""What a batch job asks for: the words of its script, of the environment and of the command line, made into one
request, with a row for each option that says what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from lockstep.slurm.getopt import NONE, Found, OptionError, read
from lockstep.slurm.handling import HOLDS, IGNORED, MAPPED, REFUSED
from lockstep.slurm.hostlist import MOST
from lockstep.slurm.layout import MOST_TASKS_OF_NODE
from lockstep.slurm.signals import Notice
from lockstep.slurm.sizes import cpus_of, gpus_of, plural
from lockstep.slurm.submission.dependencies import Dependencies
from lockstep.slurm.submission.directives import Directives
from lockstep.slurm.submission.kept import not_kept
from lockstep.slurm.submission.node_counts import MOST_OF_ONE, nodes_by_gpus, words_for_many
from lockstep.slurm.submission.options import ENVIRONMENT, HANDLING, OPTIONS, known
from lockstep.slurm.submission.values import Reader, fields_of

_TASKS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-tres", "gpus")


class OptionOutcome(NamedTuple):
    """What became of one option. ``words``: what it means here, or why it is ignored or refused, and what instead."""

    option: str
    value: str
    handling: str
    words: str = ""

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        return f"{self.option}{f' {self.value}' if self.value else ''}: {self.words or self.handling}"


@dataclass(frozen=True)
class BatchRequest:
    """One job, or one component of it. None, empty: not said; what is not said is left out of the environment too."""

    job_name: str = ""
    nodes: int = 1
    most_nodes: int = 1  # more than ``nodes``: elastic between them
    nodes_said: bool = False
    ntasks: Optional[int] = None
    ntasks_per_node: Optional[int] = None
    ntasks_per_gpu: Optional[int] = None
    partitions: Tuple[str, ...] = ()
    nodelist: Tuple[str, ...] = ()
    exclude: Tuple[str, ...] = ()
    features: Tuple[str, ...] = ()  # all of them
    time_limit: Optional[int] = None  # seconds; times.UNLIMITED
    time_min: Optional[int] = None
    begin: str = ""
    deadline: str = ""
    dependency: Optional[Dependencies] = None
    kill_on_invalid_dependency: bool = False
    array: str = ""
    hold: bool = False
    nice: int = 0
    qos: str = ""
    account: str = ""
    reservation: str = ""
    comment: str = ""
    mail_types: Tuple[str, ...] = ()
    mail_user: str = ""
    gpus_per_node: Optional[int] = None
    gpu_types: Tuple[str, ...] = ()
    notice: Optional[Notice] = None
    requeue: Optional[bool] = None
    survives_node_loss: bool = False  # -k
    switches: Optional[int] = None  # leaf switches at most
    switches_wait: Optional[int] = None  # seconds to wait for so few
    segment: Optional[int] = None
    contiguous: bool = False
    chdir: str = ""
    output: str = ""
    error: str = ""
    input: str = ""
    append: Optional[bool] = None
    export: str = ""
    export_file: str = ""
    image: str = ""
    mounts: str = ""
    image_workdir: str = ""
    wrap: str = ""
    wait: bool = False
    test_only: bool = False
    parsable: bool = False
    quiet: bool = False
    cpus_per_task: Optional[int] = None
    memory: Optional[int] = None  # MiB of a node
    said: Tuple[Tuple[str, str], ...] = ()  # options as typed, for the variables that repeat them

    def as_typed(self, option: str) -> str:
        """The value last written for it, or empty."""
        return dict(self.said).get(option, "")


class Batch(NamedTuple):
    """What was asked for and what became of each option. Anything refused: nothing is to start."""

    request: BatchRequest
    rows: Sequence[OptionOutcome]
    arguments: Sequence[str] = ()  # script and its arguments

    @property
    def refusals(self) -> List[OptionOutcome]:
        return [row for row in self.rows if row.handling == REFUSED]

    @property
    def notices(self) -> List[OptionOutcome]:
        return [row for row in self.rows if row.handling == IGNORED]


def batches(
    script: Directives,
    environ: Mapping[str, str],
    arguments: Sequence[str],
    reader: Optional[Reader] = None,
    cluster: str = "",
) -> List[Batch]:
    """One for each component; the command line and the environment count for all. Raises OptionError.

    ``reader``: text of a file that an option names. ``cluster``: how this one is called.
    """
    of_environment = _of_environment(environ)
    of_command_line, rest = read("sbatch", OPTIONS, arguments)
    of_all = list(_last([*of_environment, *of_command_line]).items())  # read once, and not for each component
    made = []
    hosts = 0
    for words in script.components:
        of_script, stray = read("sbatch", OPTIONS, [word.text for word in words])
        if stray:
            raise OptionError(f"sbatch: error: Invalid directive found in batch script: {stray[0]}\n")
        request, rows = request_of([*of_script, *of_all], reader, cluster)
        hosts += len(request.nodelist) + len(request.exclude)
        if hosts > MOST:
            raise OptionError(f"sbatch: error: -w and -x of all components name more than {MOST} hosts\n")
        made.append(Batch(request, rows, rest))
    return made


def request_of(
    found: Sequence[Found], reader: Optional[Reader] = None, cluster: str = ""
) -> Tuple[BatchRequest, List[OptionOutcome]]:
    """The request, and what became of each option; of one said twice the last counts."""
    last = _last(found)
    if "no-requeue" in last and "requeue" in last:  # the later one
        del last[min(("requeue", "no-requeue"), key=list(last).index)]
    rows: List[OptionOutcome] = []
    said: Dict[str, object] = {}
    for name, value in last.items():
        handling, words = HANDLING[name]
        if (name == "clusters" and value == cluster) or (name == "mem" and value == "0"):  # all of a node's
            handling, words = HOLDS, ""
        try:
            fields, meaning = fields_of(name, value or "", reader)
            said.update(fields)
            rows.append(OptionOutcome(f"--{name}", value or "", handling, meaning or words))
        except ValueError as error:
            rows.append(OptionOutcome(f"--{name}", value or "", REFUSED, str(error)))
    request = replace(BatchRequest(), **said, said=tuple((n, v or "") for n, v in last.items()))  # type: ignore[arg-type]
    for name, lost in not_kept(dict(request.said), request.switches, request.switches_wait, request.notice):
        rows.append(OptionOutcome(f"--{name}", request.as_typed(name), IGNORED, lost))
    return _completed(request, rows), rows


def _last(found: Sequence[Found]) -> Dict[str, Optional[str]]:
    """What each option was last said to be, in the order of that."""
    last: Dict[str, Optional[str]] = {}
    for name, value in found:
        last.pop(name, None)
        last[name] = value
    return last


def _of_environment(environ: Mapping[str, str]) -> List[Found]:
    return [
        (name, None if known(name).value == NONE else environ[variable])
        for variable, name in ENVIRONMENT.items()
        if variable in environ
    ]


def _completed(request: BatchRequest, rows: List[OptionOutcome]) -> BatchRequest:
    """What follows from several options together. Adds to ``rows``."""
    request = _with_nodes(_with_tasks_by_gpus(_with_cpus(request, rows)), rows)
    request = _with_gpus(request, rows)
    request = _with_tasks_per_gpu(request, rows) if request.ntasks_per_gpu else request
    by_node = request.nodes_said or request.nodelist or any(map(request.as_typed, ("gpus-per-node", "gres")))
    if not by_node and request.nodes == 1 and (request.gpus_per_node or 0) > MOST_OF_ONE:
        rows.append(OptionOutcome("--nodes", "", IGNORED, words_for_many(request.gpus_per_node or 0)))
    per_node, total = request.ntasks_per_node, request.ntasks
    if per_node is not None and total is None:
        request = replace(request, ntasks=per_node * request.nodes)
    most = request.nodes * MOST_TASKS_OF_NODE
    if request.ntasks is not None and request.ntasks > most:
        here = plural(request.nodes, "node")
        words = f"at most {most} tasks run on {here}, {MOST_TASKS_OF_NODE} each; write a larger -N"
        option = next((name for name in _TASKS if request.as_typed(name)), _TASKS[0])
        rows.append(OptionOutcome(f"--{option}", request.as_typed(option), REFUSED, words))
    return request


def _with_cpus(request: BatchRequest, rows: List[OptionOutcome]) -> BatchRequest:
    """Those of ``--tres-per-task``, as if ``-c`` said them: ``SLURM_CPUS_PER_TASK`` has either."""
    text = request.as_typed("tres-per-task")
    try:
        cpus = cpus_of(text)
    except ValueError as error:
        rows.append(OptionOutcome("--tres-per-task", text, REFUSED, str(error)))
        return request
    if cpus is None or request.cpus_per_task is not None:
        return request
    handling, words = HANDLING["cpus-per-task"]
    rows.append(OptionOutcome("--tres-per-task", f"cpu:{cpus}", handling, words))
    return replace(request, cpus_per_task=cpus, said=(*request.said, ("cpus-per-task", str(cpus))))


def _with_tasks_by_gpus(request: BatchRequest) -> BatchRequest:
    """``--gpus`` and ``--gpus-per-task`` alone."""
    if request.ntasks is not None or request.ntasks_per_node:
        return request
    try:
        total, each = (gpus_of(request.as_typed(name), name) for name in ("gpus", "gpus-per-task"))
    except ValueError:  # it is refused where it is read
        return request
    return replace(request, ntasks=max(1, total[0] // each[0])) if total and each and each[0] else request


def _with_tasks_per_gpu(request: BatchRequest, rows: List[OptionOutcome]) -> BatchRequest:
    """Tasks by GPUs, or GPUs by tasks."""
    per_gpu, gpus, nodes = request.ntasks_per_gpu or 1, request.gpus_per_node, request.nodes
    option = "--ntasks-per-gpu" if request.as_typed("ntasks-per-gpu") else "--ntasks-per-tres"
    words = ""
    for other in ("ntasks-per-node", "gpus-per-task", "tres-per-task"):
        if request.as_typed(other):
            words = f"excludes --{other}, as in Slurm; keep one of them"
    if not words and request.ntasks is None and gpus:
        total = nodes * gpus * per_gpu
        rows.append(
            OptionOutcome(
                option,
                str(per_gpu),
                MAPPED,
                f"{plural(total, 'task')}, {per_gpu} for each of {plural(nodes * gpus, 'GPU')}",
            )
        )
        return replace(request, ntasks=total)
    if not words and request.ntasks is not None:
        needed = -(-request.ntasks // per_gpu)
        if gpus is None and needed % nodes == 0:
            return replace(request, gpus_per_node=needed // nodes)
        if gpus is not None and needed <= gpus * nodes:
            return request
        here = f"{plural(request.ntasks, 'task')} on {plural(nodes, 'node')}"
        words = f"{here} need {plural(needed, 'GPU')}; write --gpus-per-node so that they fit"
    rows.append(
        OptionOutcome(option, str(per_gpu), REFUSED, words or "of how many GPUs is not said: write --gpus-per-node")
    )
    return request


def _with_nodes(request: BatchRequest, rows: List[OptionOutcome]) -> BatchRequest:
    total, per_node = request.ntasks, request.ntasks_per_node
    named = len(set(request.nodelist))
    by_gpus = nodes_by_gpus(dict(request.said), total, per_node, request.ntasks_per_gpu)
    if request.nodes_said:
        if total is not None and total < request.nodes:
            words = f"can't run {total} processes on {request.nodes} nodes, setting nnodes to {total}"
            rows.append(OptionOutcome("--nodes", str(request.nodes), MAPPED, words))
            request = replace(request, nodes=total, most_nodes=total)
        if request.as_typed("nodefile") and named and named != request.nodes:
            words = f"the file names {plural(named, 'node')}, and -N asks for {request.nodes}; say the same in both"
            rows.append(OptionOutcome("--nodefile", request.as_typed("nodefile"), REFUSED, words))
        return request
    if total is not None and per_node:
        nodes = -(-total // per_node)
        rows.append(
            OptionOutcome("--ntasks", str(total), MAPPED, f"{plural(nodes, 'node')} of {plural(per_node, 'task')}")
        )
    elif named:
        nodes = named
    elif by_gpus is not None:
        nodes = by_gpus
        if nodes > 1:
            words = f"{plural(nodes, 'node')}, by the GPUs in all and of each"
            rows.append(OptionOutcome("--nodes", "", MAPPED, words))
    elif total is not None and total > 1:
        nodes = 1
        rows.append(
            OptionOutcome("--ntasks", str(total), MAPPED, "on one node, as neither -N nor --ntasks-per-node is given")
        )
        for option in ("ntasks-per-core", "ntasks-per-socket"):
            if request.as_typed(option):
                words = "how many nodes follow from it is not known here; write -N and --ntasks-per-node"
                rows.append(OptionOutcome(f"--{option}", request.as_typed(option), REFUSED, words))
    else:
        nodes = 1
    return replace(request, nodes=nodes, most_nodes=nodes)


def _with_gpus(request: BatchRequest, rows: List[OptionOutcome]) -> BatchRequest:
    """GPUs per node, of whichever options say it; they have to agree."""
    counts: Dict[str, int] = {}
    types: List[str] = []
    per_node = request.ntasks_per_node or (
        -(-request.ntasks // request.nodes) if request.ntasks is not None else 1
    )  # tasks
    for option in ("gpus-per-node", "gres", "gpus", "gpus-per-task", "tres-per-task"):
        text = request.as_typed(option)
        try:
            found = gpus_of(text, option) if text else None
        except ValueError as error:
            rows.append(OptionOutcome(f"--{option}", text, REFUSED, str(error)))
            continue
        if found is None:
            continue
        count, kind = found
        if option == "gpus":
            if count % request.nodes:
                given = f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'}"
                words = f"{given} not the same on each of {request.nodes} nodes; write --gpus-per-node"
                rows.append(OptionOutcome("--gpus", text, REFUSED, words))
                continue
            count //= request.nodes
        elif option.endswith("-per-task"):
            count *= per_node
        counts[option] = count
        types += [kind] if kind and kind not in types else []
    if len(set(counts.values())) > 1:
        option, count = list(counts.items())[-1]
        first, other = next(iter(counts.items()))
        words = f"that is {plural(count, 'GPU')} on each node, but --{first} means {other}; keep one of them"
        rows.append(OptionOutcome(f"--{option}", request.as_typed(option), REFUSED, words))
    if len(types) > 1:
        rows.append(OptionOutcome("--gres", ",".join(types), REFUSED, "the gang gets GPUs of one type; name one"))
    return replace(request, gpus_per_node=next(iter(counts.values()), None), gpu_types=tuple(types[:1]))
