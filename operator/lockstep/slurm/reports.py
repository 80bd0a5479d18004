"""What srun says of its tasks, and the code that it ends with."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from lockstep.slurm import signals
from lockstep.slurm.hostlist import compress

SLURM_ERROR = 1


class TaskEnd(NamedTuple):
    """How one task ended: with a code, or by a signal."""

    task: int
    node: str
    code: int = 0
    signal: Optional[int] = None
    out_of_memory: bool = False
    core: bool = False


def label(task: int, tasks: int) -> str:
    """In front of each line with ``-l``; as wide as the highest rank needs."""
    return f"{task:>{len(str(tasks - 1))}}: "


def exit_lines(ends: Iterable[TaskEnd], cancelled: bool = False) -> List[str]:
    """One for each node and way to end, as those came; of code 0, and of signals that were asked for, none."""
    grouped: Dict[Tuple[str, int, Optional[int], bool, bool], List[int]] = {}
    for end in ends:
        grouped.setdefault((end.node, end.code, end.signal, end.out_of_memory, end.core), []).append(end.task)
    lines = []
    for (node, code, number, out_of_memory, core), tasks in grouped.items():
        if out_of_memory:
            words = "Out Of Memory"
        elif number is not None:
            words = "" if cancelled else signals.words(number) + (" (core dumped)" if core else "")
        else:
            words = f"Exited with exit code {code}" if code else ""
        if words:
            which = f"task{'s' if len(tasks) > 1 else ''} {ranks(tasks)}"
            lines.append(f"srun: error: {compress([node])}: {which}: {words}")
    return lines


def exit_code(ends: Iterable[TaskEnd]) -> int:
    """srun's own: the highest code; the highest signal beats all codes and is 128 more; memory beats both."""
    ends = list(ends)
    if any(end.out_of_memory for end in ends):
        return SLURM_ERROR
    ended_by = [end.signal for end in ends if end.signal is not None]
    return 128 + max(ended_by) if ended_by else max((end.code for end in ends), default=0)


def is_bad(end: TaskEnd) -> bool:
    """What ``--kill-on-bad-exit`` ends a step for."""
    return bool(end.code) or end.signal is not None or end.out_of_memory


def terminating(job: int, step: int) -> str:
    return f"srun: Terminating StepId={job}.{step}"


def step_cancelled(job: int, step: int, node: str, local_time: str) -> str:
    """``local_time``: as 2026-12-01T08:00:00."""
    return f"slurmstepd: error: *** STEP {job}.{step} ON {node} CANCELLED AT {local_time} ***"


def not_started(program: str, words: str) -> str:
    """Of a command that cannot be run, ``words`` the system's; the code of its task is the number of that error."""
    return f"slurmstepd: error: execve(): {program}: {words}"


def aborting(seconds: int) -> str:
    return f"srun: Job step aborted: Waiting up to {seconds} seconds for job step to finish."


def first_exit(seconds: int, job: int, step: int, running: Sequence[int], ended: Iterable[TaskEnd]) -> List[str]:
    """When ``-W`` has run out."""
    ended = list(ended)
    lines = [f"srun: First task exited {seconds}s ago"]
    for words, tasks in (
        ("running", list(running)),
        ("exited abnormally", [end.task for end in ended if is_bad(end)]),
        ("exited", [end.task for end in ended if not is_bad(end)]),
    ):
        if tasks:
            lines.append(f"srun: StepId={job}.{step} task{'' if len(tasks) == 1 else 's'} {ranks(tasks)}: {words}")
    return [*lines, terminating(job, step)]


def ranks(tasks: Sequence[int]) -> str:
    """``0-3,7``."""
    text = compress(str(task) for task in sorted(tasks))
    return text.strip("[]")
