"""``sacct`` of one job and its steps: its command line, and the rows that it prints."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Sequence

from lockstep.slurm import times
from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.getopt import OptionError, options, read_anywhere
from lockstep.slurm.hostlist import compress

OPTIONS = options("""
    accounts/A: account:=accounts allclusters/L allusers/a array brief/b clusters/M: cluster:=clusters completion/c
    constraints/C: delimiter: duplicates/D endtime/E: env-vars format/o: fields:=format federation flags/F: gid/g:
    group:=gid help/h helpformat/e jobs/j: job:=jobs json? local long/l name: ncpus/I: nnodes/i: nodelist/N: noconvert
    noheader/n parsable/p parsable2/P partition/r: qos/q: starttime/S: state/s: timelimit-max/K: timelimit-min/k:
    truncate/T uid/u: user:=uid units: usage verbose/v version/V wckeys/W: whole-hetjob? allocations/X yaml?
""")
USUAL = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
_WIDTHS = {
    "jobid": -12, "jobidraw": -12, "exitcode": 8, "derivedexitcode": 15, "nodelist": 15, "start": 19, "end": 19,
    "nnodes": 8, "ntasks": 8, "user": 9, "uid": 9, "submit": 19, "workdir": 20, "group": 9, "restarts": 8,
}  # fmt: skip
_USUAL_WIDTH = 10
_FIELDS = """
    AllocCPUS AllocNodes AllocTRES Account AdminComment AssocID AveCPU AveCPUFreq AveDiskRead AveDiskWrite AvePages
    AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy ConsumedEnergyRaw Container CPUTime
    CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw Eligible End ExitCode Extra FailedNode Flags GID Group
    JobID JobIDRaw JobName Layout Licenses MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite
    MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize
    MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks Partition
    Planned PlannedCPU PlannedCPURAW Priority QOS QOSRAW QOSREQ Reason ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax
    ReqCPUFreqMin ReqCPUS ReqMem ReqNodes ReqTRES Reservation ReservationId Restarts Reserved ResvCPU ResvCPURAW
    SegmentSize SLUID Start State StdErr StdIn StdOut Submit SubmitLine Suspended SystemComment SystemCPU Timelimit
    TimelimitRaw TotalCPU TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin
    TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode
    TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot UID User UserCPU
    WCKey WCKeyID WorkDir
"""
"""Slurm's fields, as they are written. Those that nothing is known of here are empty, as sacct has what it lacks."""
_NAMES = {name.lower(): name for name in _FIELDS.split()}


class SacctColumn(NamedTuple):
    """Width below 0: on the left."""

    name: str
    width: int


class Accounting(NamedTuple):
    """What is asked for."""

    columns: Sequence[SacctColumn]
    jobs: Sequence[str] = ()
    header: bool = True
    delimiter: str = ""  # of parsable output
    ends_with_it: bool = False
    whole_jobs: bool = False  # and no steps
    show_version: bool = False
    show_fields: bool = False
    names: Sequence[str] = ()
    states: Sequence[str] = ()


class AccountedStep(NamedTuple):
    """A row below the job's. ``step``: its number, or ``batch``. ``end`` 0: it runs."""

    step: str
    name: str
    nodes: Sequence[str]
    tasks: int
    start: int
    end: int
    state: str
    code: int = 0
    signal: int = 0


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Accounting:
    """Raises OptionError with what sacct prints."""
    found, words = read_anywhere("sacct", OPTIONS, arguments)
    if words:
        raise OptionError(f"sacct: error: {words[0]}: not an option\n")
    said = {name: value or "" for name, value in found}
    for name in ("json", "yaml"):
        if name in said:
            raise OptionError(f"sacct: error: --{name} is not known inside of a job; use --format\n")
    formats = [value or "" for name, value in found if name == "format"]
    usual = BRIEF if "brief" in said else environ.get("SACCT_FORMAT") or USUAL
    columns = [_column(word) for word in ",".join(formats or [usual]).split(",") if word]
    parsable = "parsable" in said or "parsable2" in said
    return Accounting(
        columns, [job for job in said.get("jobs", "").split(",") if job], "noheader" not in said,
        (said.get("delimiter") or "|") if parsable else "", "parsable" in said, "allocations" in said,
        "version" in said, "helpformat" in said, _listed(said.get("name", "")), _listed(said.get("state", "").upper()),
    )  # fmt: skip


def lines(asked: Accounting, job: SlurmJob, state: str, steps: Sequence[AccountedStep], now: int) -> List[str]:
    """Of the job, its script, and its steps, as far as they are asked for. ``now``: unix s."""
    if not _fits(asked, job, state):
        return _header(asked)
    array = job.array
    own = f"{array.job}_{array.task}" if array else str(job.id)
    batch = AccountedStep("batch", "batch", job.nodes[:1], 1, job.start_time, 0, state)
    highest = max((step.code for step in steps), default=0)
    first = {
        **_row(batch._replace(nodes=job.nodes, tasks=0, name=job.name), job, now),
        "derivedexitcode": f"{highest}:0",
    }
    rows = [{**first, "jobid": own, "jobidraw": str(job.id), "user": job.user, "uid": str(job.uid), "ntasks": ""}]
    for step in [] if asked.whole_jobs else [batch, *steps]:
        ids = {"jobid": f"{own}.{step.step}", "jobidraw": f"{job.id}.{step.step}", "partition": "", "timelimit": ""}
        rows.append({**_row(step, job, now), **ids})
    wanted = [job.split(".")[1] for job in asked.jobs if "." in job and not asked.whole_jobs]
    if wanted and len(wanted) == len(asked.jobs):  # steps alone
        rows = [row for row in rows if row["jobidraw"].partition(".")[2] in wanted]
    return _header(asked) + [_line(asked, row) for row in rows]


def fields() -> str:
    """``--helpformat``."""
    return " ".join(sorted(_NAMES.values())) + "\n"


def _fits(asked: Accounting, job: SlurmJob, state: str) -> bool:
    own = {str(job.id)} | ({str(job.array.job), f"{job.array.job}_{job.array.task}"} if job.array else set())
    known = not asked.jobs or any(each.partition(".")[0] in own for each in asked.jobs)
    named = not asked.names or job.name in asked.names
    return known and named and (not asked.states or state in asked.states or "R" in asked.states)


def _row(step: AccountedStep, job: SlurmJob, now: int) -> Dict[str, str]:
    span = max(0, (step.end or now) - step.start)
    cpus = sum(count for node, count in zip(job.nodes, job.cpus) if node in step.nodes)  # noqa: B905 (Python 3.8)
    limit = job.end_time - job.start_time if job.end_time else 0
    return {
        "jobname": step.name, "partition": job.partition, "account": job.account, "alloccpus": str(cpus),
        "ncpus": str(cpus), "state": step.state, "exitcode": f"{step.code}:{step.signal}",
        "nodelist": compress(step.nodes), "start": times.moment(step.start), "end": times.moment(step.end),
        "elapsed": times.written(span), "elapsedraw": str(span), "nnodes": str(len(step.nodes)),
        "allocnodes": str(len(step.nodes)), "ntasks": str(step.tasks), "submit": times.moment(step.start),
        "timelimit": times.written(limit) if limit else "UNLIMITED", "cluster": job.cluster, "qos": job.qos,
        "workdir": job.starts_in, "group": job.group, "restarts": str(job.restarts), "user": "", "uid": "",
    }  # fmt: skip


def _column(word: str) -> SacctColumn:
    """``State%20``. Raises OptionError."""
    name, _, width = word.strip().partition("%")
    if name.lower() not in _NAMES or not re.fullmatch("-?[0-9]{0,4}", width):
        raise OptionError(f'sacct: fatal: Invalid field requested: "{word}"\n')
    return SacctColumn(
        _NAMES[name.lower()], int(width) if width.strip("-") else _WIDTHS.get(name.lower(), _USUAL_WIDTH)
    )


def _header(asked: Accounting) -> List[str]:
    if not asked.header:
        return []
    names = {column.name.lower(): column.name for column in asked.columns}
    made = [_line(asked, names)]
    if not asked.delimiter:
        made.append("".join("-" * abs(column.width) + " " for column in asked.columns))
    return made


def _line(asked: Accounting, row: Mapping[str, str]) -> str:
    values = [row.get(column.name.lower(), "") for column in asked.columns]
    if asked.delimiter:
        return asked.delimiter.join(values) + asked.delimiter * asked.ends_with_it
    return "".join(_fitted(value, column.width) + " " for value, column in zip(values, asked.columns))  # noqa: B905 (Python 3.8)


def _fitted(value: str, width: int) -> str:
    """What is wider than its column ends with a plus."""
    size = abs(width)
    if len(value) > size:
        value = value[: size - 1] + "+"
    return value.ljust(size) if width < 0 else value.rjust(size)


def _listed(text: str) -> List[str]:
    return [each for each in text.split(",") if each]
