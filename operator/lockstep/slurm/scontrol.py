"""``scontrol`` within a job: its command line, and what it answers by itself."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from lockstep.slurm import times
from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.getopt import options, read_anywhere
from lockstep.slurm.hostlist import compress, expand

VERSION = "24.11.5"
"""Of Slurm, whose commands these are like: clients compare it. Ours must not stand in its place."""
OPTIONS = options(
    """
    all/a cluster:=clusters clusters/M: details/d future/F help/h hide/Q local oneliner/o quiet/q sibling uid/u:
    verbose/v version/V
"""
)
_VERBS = ("hold", "release", "requeue", "requeuehold", "show", "update", "ping", "suspend", "resume", "version")
_ENTITIES = {  # with how many letters at least
    "hostnames": 5, "hostlistsorted": 9, "hostlist": 5, "jobs": 1, "config": 1, "nodes": 1, "partitions": 1, "steps": 1,
}  # fmt: skip


class ScontrolCommand(NamedTuple):
    """What is asked of it. ``fields``: of ``update``, names in small letters."""

    verb: str
    entity: str = ""
    argument: str = ""
    fields: Mapping[str, str] = {}
    one_line: bool = False


class Printed(NamedTuple):
    """What it prints, and its code."""

    code: int
    out: str = ""
    err: str = ""


def version(program: str = "slurm") -> str:
    """The line of ``--version`` of each command."""
    return f"{program} {VERSION}\n"


def parse(arguments: Sequence[str]) -> ScontrolCommand:
    """Raises OptionError, and ValueError with what scontrol prints."""
    found, words = read_anywhere("scontrol", OPTIONS, arguments)
    names = {name for name, _ in found}
    if "version" in names:
        return ScontrolCommand("version")
    if not words:
        raise ValueError("scontrol: there is no terminal to ask for commands; write one, e.g. show hostnames\n")
    verb = next((verb for verb in _VERBS if verb.startswith(words[0].lower()) and len(words[0]) >= 3), None)
    if verb is None:
        raise ValueError(f"invalid keyword: {words[0]}\n")
    one_line = "oneliner" in names
    if verb == "show":
        return _show(words[1:], one_line)
    if verb == "update":
        fields = {name.lower(): value for name, _, value in (word.partition("=") for word in words[1:])}
        return ScontrolCommand(verb, fields=fields)
    if len(words) < 2 and verb not in ("ping", "version"):
        raise ValueError(f"too few arguments for keyword:{words[0]}\n")
    return ScontrolCommand(verb, argument=",".join(words[1:]))


def answer(ask: ScontrolCommand, environ: Mapping[str, str]) -> Optional[Printed]:
    """What needs nobody else; None: the operator or the worker knows."""
    if ask.verb == "version":
        return Printed(0, version())
    if ask.verb != "show" or not ask.entity.startswith("host"):
        return None
    text = ask.argument
    if ask.entity == "hostnames":
        text = text or environ.get("SLURM_JOB_NODELIST", environ.get("SLURM_NODELIST", ""))
        if not text:
            return Printed(1, err="scontrol: error: host list is empty\n")
    elif not text:
        return Printed(1, err="Hostlist is NULL\n")
    try:
        hosts = expand(text)
    except ValueError:
        return Printed(1, err=f"Invalid hostlist: {text}\n")
    if ask.entity == "hostnames":
        return Printed(0, "".join(f"{host}\n" for host in hosts))
    return Printed(0, compress(_sorted(hosts) if ask.entity == "hostlistsorted" else hosts) + "\n")


def show_job(
    job: SlurmJob, state: str, command: str, outputs: Tuple[str, str, str], now: int, one_line: bool = False
) -> str:
    """``scontrol show job``. ``outputs``: paths of stdout, stderr and stdin; ``now``: unix s."""
    span = max(0, now - job.start_time)
    limit = times.written(job.end_time - job.start_time) if job.end_time else "UNLIMITED"
    stdout, stderr, stdin = outputs
    cpus, tasks, per_task = sum(job.cpus), job.ntasks or len(job.nodes), job.said.get("cpus-per-task") or "1"
    array = []
    if job.array is not None:
        array = [f"ArrayJobId={job.array.job} ArrayTaskId={job.array.task}"]
        width = job.said.get("array", "").partition("%")[2].rstrip("]")
        array += [f"ArrayTaskThrottle={width}"] if width.isdecimal() else []
    rows: List[str] = [
        " ".join([f"JobId={job.id}", *array, f"JobName={job.name}"]),
        f"UserId={job.user}({job.uid}) GroupId={job.group or job.gid}({job.gid}) MCS_label=N/A",
        f"Priority=1 Nice={job.said.get('nice', '0')} Account={job.account or '(null)'} QOS={job.qos or '(null)'}",
        f"JobState={state} Reason=None Dependency=(null)",
        f"Requeue={int('no-requeue' not in job.said)} Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode=0:0",
        f"RunTime={times.written(span)} TimeLimit={limit} TimeMin=N/A",
        f"StartTime={times.moment(job.start_time)} EndTime={times.moment(job.end_time)} Deadline=N/A",
        f"Partition={job.partition} AllocNode:Sid={job.submit_host}:1",
        f"ReqNodeList={job.said.get('nodelist') or '(null)'} ExcNodeList={job.said.get('exclude') or '(null)'}",
        f"NodeList={compress(job.nodes)}",
        f"BatchHost={job.nodes[0]}",
        f"NumNodes={len(job.nodes)} NumCPUs={cpus} NumTasks={tasks} CPUs/Task={per_task} ReqB:S:C:T=0:0:*:*",
        f"OverSubscribe=NO Contiguous={int('contiguous' in job.said)} Licenses=(null) Network=(null)",
        f"Command={command}",
        f"WorkDir={job.starts_in}",
        f"StdErr={stderr}",
        f"StdIn={stdin}",
        f"StdOut={stdout}",
    ]
    return (" " if one_line else "\n   ").join(rows) + "\n" * (1 if one_line else 2)


def show_config(cluster: str, most_seconds: int = 0) -> str:
    """The lines of ``scontrol show config`` that clients look for."""
    rows: Dict[str, str] = {
        "ClusterName": cluster,
        "MinJobAge": "300 sec",
        "MaxArraySize": "10000",
        "KillOnBadExit": "0",
        "MpiDefault": "none",
        "SLURM_VERSION": VERSION,
        "MaxJobTime": times.written(most_seconds) if most_seconds else "UNLIMITED",
    }
    return "".join(f"{name:<24}= {value}\n" for name, value in rows.items())


def _show(words: Sequence[str], one_line: bool) -> ScontrolCommand:
    entity, equals, argument = (words[0] if words else "").partition("=")
    if not equals and len(words) > 1:
        argument = words[1]
    if not entity or len(words) > 2:
        problem = "too many" if len(words) > 2 else "too few"
        raise ValueError(f"{problem} arguments for keyword:show\n")
    if entity.lower() in ("jobid", "job"):
        entity = "jobs"
    for name, least in _ENTITIES.items():
        if name.startswith(entity.lower()) and len(entity) >= least:
            return ScontrolCommand("show", name, argument, one_line=one_line)
    raise ValueError(f"invalid entity:{entity} for keyword:show \n")


def _sorted(hosts: Sequence[str]) -> List[str]:
    def key(host: str) -> Tuple[str, int]:
        stem = host.rstrip("0123456789")
        return stem, int(host[len(stem) :] or 0)

    return sorted(hosts, key=key)
