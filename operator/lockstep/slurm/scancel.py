"""``scancel``: which jobs and steps, and which signal."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.getopt import OptionError, options, read_anywhere
from lockstep.slurm.hostlist import expand
from lockstep.slurm.signals import NUMBERS, number

OPTIONS = options("""
    account/A: batch/b clusters/M: cluster:=clusters ctld cron full/f help hurry/H interactive/i jobname:=name me
    name/n: nodelist/w: partition/p: qos/q: quiet/Q reservation/R: signal/s: sibling: state/t: usage user/u: verbose/v
    version/V wckey: admin-comment:
""")
_OF_NO_JOB = ("wckey", "sibling")
"""Filters by what no job here has."""
_ID = re.compile(r"([0-9]{1,10})(?:_(\[[0-9,-]+\]|[0-9]{1,10}))?(?:\.([0-9]{1,10}|batch))?")


class Which(NamedTuple):
    """One id: a job, tasks of an array (None: all), a step (empty: the whole job)."""

    job: int
    tasks: Optional[Tuple[int, ...]] = None
    step: str = ""


class Cancel(NamedTuple):
    """What is to be cancelled: all that fit the filters, of which empty ones count for none, and which ids name, if
    there are some."""

    ids: Sequence[Which] = ()
    signal: Optional[int] = None  # None: the job is ended
    batch_only: bool = False
    everything: bool = False  # shell and steps alike
    name: str = ""
    user: str = ""
    partition: str = ""
    state: str = ""
    nodes: Sequence[str] = ()
    account: str = ""
    qos: str = ""
    reservation: str = ""
    clusters: Sequence[str] = ()
    fits_none: bool = False  # a filter by what no job here has
    quiet: bool = False
    show_version: bool = False


def parse(arguments: Sequence[str], own_user: str = "") -> Cancel:
    """Raises OptionError with what scancel prints."""
    found, words = read_anywhere("scancel", OPTIONS, arguments)
    said = {name: value or "" for name, value in found}
    ids = [which(word) for each in words for word in _words(each)]
    try:
        wanted = number(said["signal"]) if "signal" in said else None
        nodes = expand(said.get("nodelist", ""))
    except ValueError as error:
        raise OptionError(f"scancel: error: {error}\n") from None
    user = own_user if "me" in said else said.get("user", "")
    made = Cancel(
        ids, wanted, "batch" in said, "full" in said, said.get("name", ""), user, said.get("partition", ""),
        said.get("state", "").upper(), nodes, said.get("account", ""), said.get("qos", ""), said.get("reservation", ""),
        tuple(filter(None, said.get("clusters", "").split(","))), any(said.get(name) for name in _OF_NO_JOB),
        "quiet" in said, "version" in said,
    )  # fmt: skip
    filters = (
        made.name, user, made.partition, made.state, nodes, made.account, made.qos, made.reservation, made.fits_none,
    )  # fmt: skip
    if not (ids or any(filters) or made.show_version):
        raise OptionError("scancel: error: No job identification provided\n")
    return made


def which(text: str) -> Which:
    """Raises OptionError."""
    matched = _ID.fullmatch(text)
    try:
        if matched is None or not int(matched[1]):
            raise ValueError(text)
        tasks = tuple(map(int, expand(matched[2] if "[" in matched[2] else f"[{matched[2]}]"))) if matched[2] else None
    except ValueError:
        raise OptionError(f"scancel: error: Invalid job id {text}\n") from None
    return Which(int(matched[1]), tasks, matched[3] or "")


def fits(cancel: Cancel, job: SlurmJob, words: Sequence[Sequence[str]]) -> bool:
    """Whether a running job is what all filters mean. ``words``: of each of its nodes all that mean it."""
    return (
        not cancel.fits_none
        and cancel.name in ("", job.name) and cancel.user in ("", job.user, str(job.uid))
        and cancel.partition in ("", job.partition) and cancel.account in ("", job.account)
        and cancel.qos in ("", job.qos) and cancel.reservation in ("", job.reservation)
        and cancel.state in ("", "RUNNING", "R")
        and (not cancel.clusters or job.cluster in cancel.clusters or "all" in cancel.clusters)
        and all(any(node in each for each in words) for node in cancel.nodes)
    )  # fmt: skip


def ends(cancel: Cancel) -> bool:
    """Whether the job itself is to end, and no signal is only passed on."""
    return cancel.signal in (None, NUMBERS["KILL"]) and not cancel.batch_only


def _words(text: str) -> List[str]:
    """Ids that commas outside of brackets separate."""
    return re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)
