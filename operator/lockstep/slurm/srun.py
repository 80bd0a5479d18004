"""``srun`` within a job: its command line, how many tasks it means, and where they run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from lockstep.slurm import signals, times
from lockstep.slurm.getopt import NONE, Found, OptionError, read
from lockstep.slurm.gpus import GpusAsked
from lockstep.slurm.handling import IGNORED, REFUSED
from lockstep.slurm.hostlist import expand, of_file
from lockstep.slurm.layout import Layout, LayoutError, layout
from lockstep.slurm.sizes import cpus_of, gpus_of, node_count
from lockstep.slurm.srun_options import ENVIRONMENT, HANDLING, OPTIONS

MOST_TASKS = 1_000_000
DISTRIBUTIONS = ("block", "cyclic", "plane", "arbitrary")
_NOTHING_ASKED = ("none", "no", "off", "list")  # as mpirun writes it: --mpi=none --cpu-bind=none
MPI_TYPES = "MPI plugin types are...\n\tnone\n"
"""What ``--mpi=list`` prints."""
_PER_GPU = ("ntasks-per-gpu", "ntasks-per-tres")
_NOT_PER_GPU = ("ntasks-per-node", "gpus-per-task", "tres-per-task")
_NODES = {"nodelist": "nodelist", "nodefile": "nodelist", "exclude": "exclude"}
Reader = Callable[[str], str]
_NAMES = {option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class Step:
    """One component of a step, as asked for. None and empty: not said."""

    command: Tuple[str, ...] = ()
    ntasks: Optional[int] = None
    nodes: Optional[Tuple[int, int]] = None  # fewest and most
    ntasks_per_node: Optional[int] = None
    nodelist: Tuple[str, ...] = ()
    exclude: Tuple[str, ...] = ()
    relative: Optional[int] = None
    distribution: str = ""
    plane: int = 0
    output: str = ""
    error: str = ""
    input: str = ""
    append: Optional[bool] = None
    label: bool = False
    unbuffered: bool = False
    kill_on_bad_exit: bool = False
    wait: int = 0  # seconds after the first end; 0: for ever
    time_limit: Optional[int] = None
    export: str = ""
    chdir: str = ""
    job_name: str = ""
    job: str = ""  # --jobid
    het_group: str = ""
    group: int = 0  # component of a heterogeneous job in which it runs
    cpus_per_task: Optional[int] = None
    cpus_per_gpu: Optional[int] = None
    gpus: Optional[int] = None  # of all nodes
    gpus_per_node: Optional[int] = None
    gpus_per_task: Optional[int] = None
    ntasks_per_gpu: Optional[int] = None
    overlap: bool = False
    external_launcher: bool = False  # an mpirun's own, which holds nothing
    immediate: Optional[int] = None  # seconds to wait for GPUs; None: for ever
    ignored_signals: Tuple[int, ...] = ()
    preserve_env: bool = False
    quiet: bool = False
    disable_status: bool = False
    quit_on_interrupt: bool = False
    show_version: bool = False
    show_help: bool = False
    show_mpi_types: bool = False
    image: str = ""  # pyxis
    mounts: str = ""
    notices: Tuple[str, ...] = ()
    by_environment: Tuple[str, ...] = ()  # options that only the environment says

    @property
    def own_name(self) -> str:
        """Of ``-J``; empty: it has the job's."""
        return "" if "job-name" in self.by_environment else self.job_name

    @property
    def gpus_asked(self) -> GpusAsked:
        if self.external_launcher:
            return GpusAsked()
        return GpusAsked(self.gpus, self.gpus_per_node, self.gpus_per_task, self.ntasks_per_gpu)


class Counted(NamedTuple):
    """How many tasks on how many nodes. ``warnings``: what srun says of it."""

    ntasks: int
    nodes: int
    warnings: Sequence[str] = ()


def parse(arguments: Sequence[str], environ: Mapping[str, str], reader: Optional[Reader] = None) -> List[Step]:
    """A step, or the components of one (``srun a : b``), one for each group that ``--het-group`` names. Raises
    OptionError with what srun prints; OSError, of ``reader``, which has the text of a file."""
    parts: List[Tuple[Sequence[Found], List[str]]] = []
    rest = list(arguments)
    while rest or not parts:
        found, command = read("srun", OPTIONS, rest)
        at = command.index(":") if ":" in command else len(command)
        parts.append((found, command[:at]))
        rest = command[at + 1 :]
    for (_, command), (_, following) in zip(parts[-2::-1], parts[:0:-1]):  # noqa: B905 (Python 3.8)
        command += following if not command else []  # what has none has the next one's
    several = len(parts) > 1
    made = [
        replace(_step(found, _component(environ, group, several), tuple(command), reader), group=group)
        for index, (found, command) in enumerate(parts)
        for group in _groups(dict(found).get("het-group") or "", index)
    ]
    for step in made:
        if not (step.command or step.show_version or step.show_help or step.show_mpi_types):
            raise OptionError("srun: fatal: No command given to execute.\n")
    if len({step.group for step in made}) < len(made):
        words = "Duplicate het groups in single srun not supported; name each once, or call srun for each"
        raise OptionError(f"srun: fatal: {words}\n")
    return made


def counted(step: Step, job_nodes: int, node_gpus: int = 0) -> Counted:
    """By srun's own rules, in its order. ``node_gpus``: of each node of the job. Raises LayoutError."""
    warnings: List[str] = []
    total, per_node = step.ntasks, step.ntasks_per_node
    least, most = step.nodes or (0, 0)
    from_environment = set(step.by_environment)
    if step.distribution == "arbitrary" and step.nodelist:  # a node is named once for each task
        total = None if "ntasks" in from_environment else total
        total, nodes = total or len(step.nodelist), len(set(step.nodelist))
        return Counted(total, nodes)
    said_by_gpus = step.ntasks_per_gpu and not from_environment & set(_PER_GPU)
    if step.ntasks_per_gpu and "ntasks" in from_environment and (said_by_gpus or "nodes" not in from_environment):
        total = None
    if not step.nodes and step.nodelist:
        least, most = len(set(step.nodelist)), 0
    if least and total is not None:
        most = min(most or total, total)
        if total < least:
            warnings.append(f"can't run {total} processes on {least} nodes, setting nnodes to {total}")
            least = total
            from_environment.discard("nodes")
        if per_node is not None and "ntasks" in from_environment and "nodes" not in from_environment:
            total = None
        elif per_node is not None and most and total > most * per_node:
            warnings.append(
                f"can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks {total} with "
                f"the maximum number of requested nodes {most}. Ignoring --ntasks-per-node."
            )
            per_node = None
    if least > job_nodes:
        raise LayoutError(f"Only allocated {job_nodes} nodes asked for {least}")
    if least:
        nodes = min(max(least, most), job_nodes)  # of a range as many as there are
    else:
        nodes = min(total or job_nodes, job_nodes)
    total = total or step.gpus_asked.tasks(nodes, node_gpus) or nodes * (per_node or 1)
    return Counted(total, nodes, warnings)


def placed(
    step: Step, count: Counted, nodes: Sequence[Sequence[str]],
    busy: Callable[[int], Tuple[int, ...]] = lambda node: (),
) -> Layout:  # fmt: skip
    """On which nodes of the job. ``nodes``: of each all words that mean it. ``busy``: how much so the node of an index
    is; of those that may be chosen the least are, and of equals the first. Raises LayoutError."""

    named: Dict[str, int] = {}
    for index, words in enumerate(nodes):
        for word in words:
            named.setdefault(word, index)

    def index_of(word: str) -> int:
        if word not in named:
            raise LayoutError(f"Unable to create step: {word} is no node of this job")
        return named[word]

    wanted = [index_of(word) for word in step.nodelist]
    if step.distribution == "arbitrary" and wanted:
        return layout(wanted, count.ntasks, "arbitrary")
    excluded = {index_of(word) for word in step.exclude}
    start = step.relative or 0
    if set(wanted) & excluded or start + count.nodes > len(nodes):
        raise LayoutError("Unable to create step: Requested node configuration is not available")
    others = sorted(range(0 if wanted else start, len(nodes)), key=busy)
    chosen = list(dict.fromkeys([*wanted, *(node for node in others if node not in excluded)]))
    if len(chosen) < count.nodes:
        raise LayoutError(
            f"Only allocated {len(chosen)} nodes asked for {count.nodes}; are required nodes explicitly excluded?"
        )
    taken = sorted(chosen[: max(count.nodes, len(set(wanted)))])
    distribution = "block" if step.distribution in ("", "arbitrary") else step.distribution
    return layout(taken, count.ntasks, distribution, step.plane)


def _groups(said: str, index: int) -> List[int]:
    """The components of a heterogeneous job in which component ``index`` of the step runs. Raises OptionError."""
    try:
        return sorted({int(group) for group in expand(f"[{said}]")}) if said else [index]
    except ValueError:
        raise OptionError(f"srun: error: Invalid --het-group specification: {said}\n") from None


def _component(environ: Mapping[str, str], group: int, several: bool) -> Mapping[str, str]:
    """What the environment says to one component of a step."""
    if "SLURM_HET_SIZE" in environ:
        own = f"_HET_GROUP_{group}"
        return {**environ, **{name[: -len(own)]: value for name, value in environ.items() if name.endswith(own)}}
    return {name: value for name, value in environ.items() if not several or name != "SLURM_JOB_NUM_NODES"}


def _step(
    found: Sequence[Found], environ: Mapping[str, str], command: Tuple[str, ...], reader: Optional[Reader]
) -> Step:
    said: Dict[str, Optional[str]] = {}
    for variable, name in ENVIRONMENT.items():
        if name and variable in environ and _counts(name, environ[variable]):
            said[name] = None if _NAMES[name].value == NONE else environ[variable]
    by_environment = set(said)
    for name, value in found:
        said[name] = value
        by_environment.discard(name)
    _leave_out_excluded(said, by_environment)
    if environ.get("SLURM_HOSTFILE") and not said.keys() & {"nodelist", "nodefile"}:  # over any -m
        said.update({"nodefile": environ["SLURM_HOSTFILE"], "distribution": "arbitrary"})
    if "nodefile" in said:
        said.pop("nodelist", None)
    fields: Dict[str, object] = {}
    notices: List[str] = []
    for name, value in said.items():
        handling, words = HANDLING[name]
        if handling == REFUSED:
            raise OptionError(f"srun: error: --{name}: {words}\n")
        if handling == IGNORED and value not in _NOTHING_ASKED:
            notices.append(f"srun: --{name} is ignored{': ' if words else ''}{words}")
        try:
            fields.update({_NODES[name]: _hosts(name, value or "", reader)} if name in _NODES else _fields(name, value))
        except ValueError as error:
            raise OptionError(f"srun: error: Invalid --{name} specification: {error}\n") from None
    step = replace(Step(), **fields)  # type: ignore[arg-type]
    return replace(step, command=command, notices=tuple(notices), by_environment=tuple(sorted(by_environment)))


def _leave_out_excluded(said: Dict[str, Optional[str]], by_environment: Set[str]) -> None:
    """Of what excludes each other the command line's stays. Raises OptionError."""
    for per_gpu in (name for name in _PER_GPU if name in said):
        for other in (name for name in _NOT_PER_GPU if name in said):
            left = [name for name in (other, per_gpu) if name in by_environment]
            if not left:
                raise OptionError(f"srun: fatal: --{other} is mutually exclusive with --{per_gpu}; write one of them\n")
            said.pop(left[0], None)
            by_environment.discard(left[0])


def _counts(name: str, value: str) -> bool:
    """Whether a variable says its option: a flag set to 0 or no does not."""
    return _NAMES[name].value != NONE or value.lower() not in ("", "0", "no", "false")


def _fields(name: str, value: Optional[str]) -> Mapping[str, object]:
    text = value or ""
    if name in _TEXTS:
        return {_TEXTS[name]: text}
    if name in _FLAGS:
        return {_FLAGS[name]: True}
    made = _MEANINGS.get(name)
    return made(text) if made else {}


def _number(name: str, least: int) -> Callable[[str], Mapping[str, object]]:
    def made(value: str) -> Mapping[str, object]:
        if not re.fullmatch("[0-9]{1,9}", value) or not least <= int(value) <= MOST_TASKS:
            raise ValueError(value)
        return {name: int(value)}

    return made


def _distribution(value: str) -> Mapping[str, object]:
    """Sockets and cores, behind the colon, are nobody's here."""
    first = value.split(",")[0].split(":")[0].lower()
    word, _, size = first.partition("=")
    if word in ("*", "", "pack", "nopack"):
        return {}
    if word not in DISTRIBUTIONS or (size and (word != "plane" or not size.isdigit())):
        raise ValueError(value)
    return {"distribution": word, "plane": int(size or 0)}


def _time(value: str) -> Mapping[str, object]:
    found = times.seconds(value)
    if found is None:
        raise ValueError(value)
    return {"time_limit": found or None}


def _gpus(option: str, field: str) -> Callable[[str], Mapping[str, object]]:
    def made(value: str) -> Mapping[str, object]:
        found = gpus_of(value, option)
        return {field: found[0] if found else 0}

    return made


def _tres(value: str) -> Mapping[str, object]:
    cpus, gpus = cpus_of(value), gpus_of(value, "tres-per-task")
    said = {"cpus_per_task": cpus, "gpus_per_task": gpus[0] if gpus else None}
    return {name: count for name, count in said.items() if count is not None}


def _hosts(name: str, value: str, reader: Optional[Reader]) -> Tuple[str, ...]:
    """A value with a slash is a file of them. Raises ValueError, OSError."""
    if name != "nodefile" and "/" not in value:
        return tuple(expand(value))
    if reader is None:
        raise ValueError(f"the file {value} cannot be read here")
    hosts = tuple(of_file(reader(value)))
    if not hosts:
        raise ValueError(f"the file {value} lists no nodes")
    return hosts


def _ignored(value: str) -> Mapping[str, object]:
    numbers = tuple(signals.number(word.strip()) for word in value.split(","))
    if {signals.NUMBERS["KILL"], signals.NUMBERS["STOP"]} & set(numbers):
        raise ValueError(f"{value}: KILL and STOP cannot be ignored")
    return {"ignored_signals": numbers}


_TEXTS = {
    "output": "output", "error": "error", "input": "input", "export": "export", "chdir": "chdir",
    "job-name": "job_name", "jobid": "job", "het-group": "het_group", "container-image": "image",
    "container-workdir": "chdir", "container-mounts": "mounts",
}  # fmt: skip
_FLAGS = {
    "label": "label", "unbuffered": "unbuffered", "quiet": "quiet", "disable-status": "disable_status",
    "quit-on-interrupt": "quit_on_interrupt", "version": "show_version", "help": "show_help",
    "usage": "show_help", "preserve-env": "preserve_env",
}  # fmt: skip
_MEANINGS: Mapping[str, Callable[[str], Mapping[str, object]]] = {
    "ntasks": _number("ntasks", 1),
    "ntasks-per-node": _number("ntasks_per_node", 1),
    "relative": _number("relative", 0),
    "wait": _number("wait", 0),
    "cpus-per-task": _number("cpus_per_task", 1),
    "nodes": lambda value: {"nodes": node_count(value)},
    "kill-on-bad-exit": lambda value: {"kill_on_bad_exit": value.strip() not in ("0", "no")},
    "distribution": _distribution,
    "time": _time,
    "cpus-per-gpu": _number("cpus_per_gpu", 1),
    "gpus": _gpus("gpus", "gpus"),
    "gpus-per-node": _gpus("gpus-per-node", "gpus_per_node"),
    "gres": _gpus("gres", "gpus_per_node"),
    "gpus-per-task": _gpus("gpus-per-task", "gpus_per_task"),
    "tres-per-task": _tres,
    "ntasks-per-gpu": _number("ntasks_per_gpu", 1),
    "ntasks-per-tres": _number("ntasks_per_gpu", 1),
    "overlap": lambda value: {"overlap": True},
    "external-launcher": lambda value: {"external_launcher": True},
    "immediate": lambda value: {"immediate": int(value) if value.isdigit() else 0},
    "mpi": lambda value: {"show_mpi_types": value == "list"},
    "ignore-signals": _ignored,
    "open-mode": lambda value: {"append": value[:1].lower() == "a"},
}
