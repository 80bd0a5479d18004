"""``lockstep checkpoint``: the verdict that the workers would give, on any machine that sees the directory."""

from collections.abc import Iterator

from lockstep.cli.errors import UsageError
from lockstep.cli.output import echo
from lockstep.worker.checkpoints.formats import AUTO, FORMATS, INVALID, UNKNOWN, VALID, examine, verify_checkpoint
from lockstep.worker.checkpoints.formats.examination import of_a_copy
from lockstep.worker.checkpoints.tiers import attempt_steps, step_paths
from lockstep.worker.settings import SHARED_SKEW

_EXIT_CODES = {VALID: 0, INVALID: 1, UNKNOWN: 2}


def verify(path: str, form: str, reads: bool, skew: float | None, trust_times: str = "yes") -> int:
    """Print the verdict on one checkpoint, or on all in a directory of checkpoints, newest first.

    The exit code is that of the one, or of the newest.
    """
    if form != AUTO and form.partition(":")[0] not in FORMATS:
        raise UsageError(f"--format {form} is not known", f"one of {AUTO}, {', '.join(FORMATS)}")
    held = list(_checkpoints(path, form))
    if trust_times not in ("yes", "no"):
        raise UsageError(f"--trust-times {trust_times} is not known", "yes or no")
    verdicts = [_judge(each, form, reads, skew, trust_times == "yes") for each in held or [path]]
    return verdicts[0]


def _checkpoints(path: str, form: str) -> Iterator[str]:
    """Those in a directory of an attempt, or in all attempts of a run; none when the path is a checkpoint itself."""
    if examine(path, form=AUTO) is not None:
        return
    try:
        found = sorted([*attempt_steps(path, 0, form=form), *step_paths(path, form)], reverse=True)
    except OSError:
        return
    yield from (each for _, _, each in found if examine(each, form=form) is not None)


def _judge(path: str, form: str, reads: bool, skew: float | None, trusts_times: bool) -> int:
    allowed = SHARED_SKEW if skew is None else skew
    finding = examine(path, form=form, skew=allowed, trusts_times=trusts_times)
    if finding is None:
        echo(f"{INVALID}  {path}: there is no checkpoint")
        return _EXIT_CODES[INVALID]
    verdict, reason = finding.verdict, finding.reason + of_a_copy(finding)
    if reads and verdict == VALID:
        verdict, reason = verify_checkpoint(path, form=form, skew=allowed, trusts_times=trusts_times)
    size = f", {finding.bytes} bytes" if finding.bytes else ""
    echo(f"{verdict}  {path} ({finding.format}{size}){': ' if reason else ''}{reason}")
    return _EXIT_CODES[verdict]
