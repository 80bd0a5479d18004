"""``squeue`` of one job: its command line, and the lines that it prints."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

from lockstep.slurm import columns, times
from lockstep.slurm.columns import LineFormat
from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.getopt import OptionError, options, read_anywhere
from lockstep.slurm.hostlist import compress

OPTIONS = options("""
    Format/O: account/A: all/a array-unique array/r clusters/M: cluster:=clusters expand-patterns federation format/o:
    help hide iterate/i: jobs/j? licenses/L: local long/l me name/n: noconvert nodelist/w: noheader/h notme
    only-job-state partition/p: priority/P qos/q: reservation/R: sibling sort/S: start states/t: steps/s? usage user/u:
    verbose/v version/V json? yaml?
""")
SHORT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
OF_STEPS = "%.15i %.8j %.9P %.8u %.9M %N"
_FILTERS = ("account", "name", "partition", "qos", "reservation", "states", "user")
_COLUMNS: Sequence[Tuple[str, str, str]] = (  # letter of -o, name of -O, header
    ("i", "jobarrayid", "JOBID"), ("A", "jobid", "JOBID"), ("F", "arrayjobid", "ARRAY_JOB_ID"),
    ("K", "arraytaskid", "ARRAY_TASK_ID"), ("P", "partition", "PARTITION"), ("j", "name", "NAME"),
    ("u", "username", "USER"), ("U", "userid", "USER"), ("g", "groupname", "GROUP"), ("G", "groupid", "GROUP"),
    ("t", "statecompact", "ST"), ("T", "state", "STATE"), ("M", "timeused", "TIME"), ("l", "timelimit", "TIME_LIMIT"),
    ("L", "timeleft", "TIME_LEFT"), ("D", "numnodes", "NODES"), ("C", "numcpus", "CPUS"),
    ("R", "reasonlist", "NODELIST(REASON)"), ("N", "nodelist", "NODELIST"), ("B", "batchhost", "EXEC_HOST"),
    ("r", "reason", "REASON"), ("a", "account", "ACCOUNT"), ("q", "qos", "QOS"), ("v", "reservation", "RESERVATION"),
    ("S", "starttime", "START_TIME"), ("e", "endtime", "END_TIME"), ("V", "submittime", "SUBMIT_TIME"),
    ("Z", "workdir", "WORK_DIR"), ("Q", "prioritylong", "PRIORITY"), ("p", "priority", "PRIORITY"),
    ("E", "dependency", "DEPENDENCY"), ("h", "oversubscribe", "OVER_SUBSCRIBE"),
    ("b", "tres-per-node", "TRES_PER_NODE"),
    ("k", "comment", "COMMENT"), ("o", "command", "COMMAND"), ("y", "nice", "NICE"),
)  # fmt: skip


class Queue(NamedTuple):
    """What is asked for. Without ids all jobs are meant."""

    format: LineFormat
    header: bool = True
    jobs: Sequence[str] = ()
    filters: Mapping[str, Sequence[str]] = {}
    nodes: str = ""
    me: bool = False
    steps: bool = False
    show_version: bool = False


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Queue:
    """Raises OptionError with what squeue prints."""
    found, words = read_anywhere("squeue", OPTIONS, arguments)
    said = {name: value or "" for name, value in found}
    for name in ("json", "yaml"):
        if name in said:
            raise OptionError(f"squeue: error: --{name} is not known inside of a job; use --format\n")
    steps = "steps" in said
    listed = [said[name] for name in ("jobs", "steps") if said.get(name)]
    if words and not listed and (steps or "jobs" in said):  # as -j 123, whose value is optional
        listed = [words.pop(0)]
    if words:
        raise OptionError(f"squeue: error: Unrecognized option: {words[0]}\n")
    form = columns.short_format(environ.get("SQUEUE_FORMAT") or (OF_STEPS if steps else SHORT))
    if "long" in said:
        form = columns.short_format(LONG)
    if "only-job-state" in said:
        form = columns.short_format("%i %T")
    for name, value in found:
        if name == "format":
            form = columns.short_format(value or "")
        elif name == "Format":
            form = columns.long_format(value or "")
    filters = {name: said[name].split(",") for name in _FILTERS if said.get(name)}
    jobs = [job for job in ",".join(listed).split(",") if job]
    return Queue(
        form, "noheader" not in said, jobs, filters, said.get("nodelist", ""), "me" in said, steps, "version" in said
    )


def fits(queue: Queue, job: SlurmJob, nodes: Sequence[Sequence[str]]) -> bool:
    """Whether the job is one of those. ``nodes``: for each node all that mean it."""
    own = {
        "account": {job.account}, "name": {job.name}, "partition": {job.partition}, "qos": {job.qos},
        "reservation": {job.reservation}, "states": {"R", "RUNNING", "ALL"}, "user": {job.user, str(job.uid)},
    }  # fmt: skip
    for name, wanted in queue.filters.items():
        if name == "states":
            wanted = [each.upper() for each in wanted]
        if own[name].isdisjoint(wanted):
            return False
    return not queue.nodes or any(word in queue.nodes.split(",") for words in nodes for word in words)


def header(queue: Queue) -> str:
    titles = {"i": "STEPID"} if queue.steps else {}
    return columns.line(queue.format, {**_TITLES, **titles})


def job_line(queue: Queue, job: SlurmJob, state: Tuple[str, str], command: str, now: int) -> str:
    """``state``: short and long; ``now``: unix s."""
    array = job.array
    nodes = compress(job.nodes)
    limit = job.end_time - job.start_time if job.end_time else 0
    values: Dict[str, str] = {
        "i": f"{array.job}_{array.task}" if array else str(job.id), "A": str(job.id),
        "F": str(array.job if array else job.id), "K": str(array.task) if array else "N/A", "P": job.partition,
        "j": job.name, "u": job.user, "U": str(job.uid), "g": job.group, "G": str(job.gid), "t": state[0],
        "T": state[1], "M": clock(now - job.start_time), "l": clock(limit) if limit else "UNLIMITED",
        "L": clock(job.end_time - now) if limit else "UNLIMITED", "D": str(len(job.nodes)), "C": str(sum(job.cpus)),
        "R": nodes, "N": nodes, "B": job.nodes[0], "r": "None", "a": job.account or "(null)", "q": job.qos or "(null)",
        "v": job.reservation or "(null)", "S": times.moment(job.start_time),
        "e": times.moment(job.end_time) if job.end_time else "N/A", "V": times.moment(job.start_time),
        "Z": job.starts_in, "Q": "1", "p": "0.00000000", "E": "(null)", "h": "NO",
        "b": f"gres/gpu:{job.gpus}" if job.gpus else "N/A", "k": job.said.get("comment") or "(null)", "o": command,
        "y": job.said.get("nice") or "0",
    }  # fmt: skip
    return columns.line(queue.format, _by_both(values))


def step_line(queue: Queue, job: SlurmJob, step: int, name: str, nodes: Sequence[str], span: int) -> str:
    """``span``: seconds since it began."""
    values = {
        "i": f"{job.id}.{step}", "j": name, "P": job.partition, "u": job.user, "U": str(job.uid), "M": clock(span),
        "N": compress(nodes), "A": str(step), "S": "",
    }  # fmt: skip
    return columns.line(queue.format, _by_both(values))


def clock(span: int) -> str:
    """``1:02:03`` as squeue has it."""
    span = max(0, span)
    days, rest = divmod(span, 86_400)
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _by_both(values: Mapping[str, str]) -> Dict[str, str]:
    return {**values, **{name: values[letter] for letter, name, _ in _COLUMNS if letter in values}}


_TITLES = {
    **{letter: title for letter, _, title in _COLUMNS}, **{name: title for _, name, title in _COLUMNS},
}  # fmt: skip
