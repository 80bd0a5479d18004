"""The command line of an archive job. Its last word is an exit code, and JSON in the pod's termination message."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lockstep import __version__
from lockstep.api.base.durations import parse_duration
from lockstep.archive import catalog
from lockstep.archive.outcomes import (
    COMMAND_REFUSED,
    INTERNAL,
    INTERRUPTED,
    SOURCE_INVALID,
    ArchiveError,
    FailureReason,
    presentable,
)
from lockstep.archive.pace import Pace, in_units
from lockstep.archive.record import ArchiveKey, Record, RecordError
from lockstep.archive.restore import restore
from lockstep.archive.store import RETRY_SECONDS, ObjectStore
from lockstep.archive.tidy import tidy
from lockstep.archive.upload import PART_BYTES, upload
from lockstep.core.checkpoints.archive_job import MAX_TOLD, RESULT_FORMAT
from lockstep.core.checkpoints.retention import RetentionPolicy
from lockstep.core.model.quarantine import Save, SavesFrom

RESULT_FILE = "LOCKSTEP_RESULT_FILE"
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
Result = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the job: 0, else that of its reason."""
    try:
        options = _parser().parse_args(arguments)
    except ArchiveError as error:
        said = {"format": RESULT_FORMAT, **_failure(error.reason, str(error))}
        _tell(os.environ.get(RESULT_FILE, ""), said)
        return error.reason.exit_code
    result: Result = {"format": RESULT_FORMAT, "action": options.action}
    _die_on_sigterm(options.result, result)
    try:
        result |= {"outcome": "Done", "message": "", **options.run(options)}
        code = 0
    except ArchiveError as error:
        result |= _failure(error.reason, str(error))
        code = error.reason.exit_code
    except RecordError as error:
        result |= _failure(SOURCE_INVALID, str(error))
        code = SOURCE_INVALID.exit_code
    except Exception as error:
        result |= _failure(INTERNAL, f"{type(error).__name__}: {error}")
        code = INTERNAL.exit_code
    _tell(options.result, result)
    return code


def _failure(reason: FailureReason, message: str) -> Result:
    return {"outcome": reason.word, "retryable": reason.retryable, "message": presentable(message)}


def _tell(path: str, result: Result) -> None:
    text = json.dumps(result, ensure_ascii=False)  # escaped, words in other scripts would not fit
    stream = sys.stdout if result["outcome"] == "Done" else sys.stderr
    print(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding), file=stream, flush=True)
    if path:
        with contextlib.suppress(OSError):  # the exit code says the most important
            Path(path).write_text(text, encoding="utf-8", errors="replace")


def _die_on_sigterm(path: str, result: Result) -> None:
    """At once: everything that was sent or written so far is whole, and the next job goes on from there."""

    def die(*_: object) -> NoReturn:
        _tell(path, result | _failure(INTERRUPTED, "ended by SIGTERM; the next one goes on from here"))
        os._exit(INTERRUPTED.exit_code)

    signal.signal(signal.SIGTERM, die)


def _upload(options: argparse.Namespace) -> Result:
    store, place = _store(options), ArchiveKey.parse(options.run_uid, options.checkpoint)
    copied = upload(
        store,
        Path(options.source),
        place,
        form=options.format,
        part_bytes=options.part_size,
        parallel=options.parallel,
        pace=Pace(options.bandwidth),
        say=_say,
    )
    return {
        "checkpoint": _checkpoint(copied.record),
        "moved": copied.moved,
        "skipped": copied.skipped,
        "seconds": round(copied.seconds, 1),
        "already": copied.already,
    }


def _restore(options: argparse.Namespace) -> Result:
    place = ArchiveKey.parse(options.run_uid, options.checkpoint)
    restored = restore(
        _store(options),
        place,
        Path(options.into),
        parallel=options.parallel,
        pace=Pace(options.bandwidth),
        say=_say,
    )
    return {
        "checkpoint": _checkpoint(restored.record),
        "path": str(restored.path),
        "moved": restored.moved,
        "skipped": restored.skipped,
        "seconds": round(restored.seconds, 1),
        "already": restored.already,
    }


def _list(options: argparse.Namespace) -> Result:
    held = catalog.entries(_store(options), options.run_uid)
    for entry in held:
        published = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.time))
        words = f"{entry.place.label:24}  {published}  {in_units(entry.bytes):>10}  {entry.verdict}"
        _say(f"{words}  {entry.reason}".rstrip())
    return _published(held)


def _published(held: Sequence[catalog.ArchiveEntry]) -> Result:
    """As status is to know it."""
    valid = [_checkpoint(entry) for entry in held if entry.verdict == "Valid"]
    return {"published": valid[:MAX_TOLD]}


def _prune(options: argparse.Namespace) -> Result:
    policy = None
    if options.keep_last:
        policy = RetentionPolicy(options.keep_last, options.keep_every, options.keep_for)
    pinned, quarantined = frozenset(options.pin), frozenset(options.quarantined)
    dry_run = options.dry_run
    left: Result = {}
    if options.root:
        if policy is None:
            return {"pruned": 0}
        gone = tidy(
            Path(options.root),
            options.run_uid,
            policy,
            now=time.time(),
            form=options.format,
            layout=options.layout,
            pinned=pinned,
            quarantined=quarantined,
            reached=options.reached,
            dry_run=dry_run,
            say=_say,
        )
        words = [each.path for each in gone]
    else:
        pruned = catalog.prune(
            _store(options),
            options.run_uid,
            policy,
            now=time.time(),
            pinned=pinned,
            quarantined=quarantined,
            dry_run=dry_run,
        )
        words = [place.label for place in pruned.checkpoints]
        left = _published(pruned.left)
    for word in words:
        _say(f"{'would remove' if dry_run else 'removed'} {word}")
    return {"pruned": len(words)} | left


def _checkpoint(of: Record | catalog.ArchiveEntry) -> Result:
    size, published = (of.bytes, int(of.time)) if isinstance(of, catalog.ArchiveEntry) else (of.size, 0)
    told = {"attempt": of.place.attempt, "step": of.place.step, "bytes": size, "world": of.world, "format": of.format}
    return told | ({"time": published} if published else {})


def _store(options: argparse.Namespace) -> ObjectStore:
    return ObjectStore.open(options.uri, options.endpoint, options.retry_seconds)


def _say(words: str) -> None:
    print(words, flush=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """What an operator of another release asks for is said where people look for it, not on stderr alone."""
        self.print_usage(sys.stderr)
        remedy = "set the operator's archive.image to the operator's own image"
        raise ArchiveError(COMMAND_REFUSED, f"{message}; this image has Lockstep {__version__}: {remedy}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="lockstep.archive", description="Checkpoints in an object store.")
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, run: Any, words: str, *, store: bool = True) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=words, description=words)
        made.set_defaults(run=run)
        made.add_argument("--run-uid", required=True, help="UID of the TrainingRun")
        made.add_argument("--uri", required=store, default="", help="s3://bucket/prefix, gs://… or az://…")
        made.add_argument("--endpoint", default="", help="URL of an S3-compatible server")
        made.add_argument("--retry-seconds", type=float, default=RETRY_SECONDS, help="longest outage to sit out")
        made.add_argument("--result", default=os.environ.get(RESULT_FILE, ""), help="also put JSON here")
        return made

    def copying(made: argparse.ArgumentParser) -> None:
        made.add_argument("--checkpoint", required=True, help="attempt and step, e.g. a2/step-300")
        made.add_argument("--parallel", type=_positive, default=8, help="parts under way at once")
        made.add_argument("--bandwidth", type=_size, default=0, help="bytes per second at most, e.g. 200MiB")

    copy = action("upload", _upload, "Copy a valid checkpoint into the archive.")
    copying(copy)
    copy.add_argument("--source", required=True, help="its directory or file")
    copy.add_argument("--format", default="Auto", help="of the checkpoint")
    copy.add_argument("--part-size", type=_size, default=PART_BYTES, help="of the objects that files are cut into")

    back = action("restore", _restore, "Bring a checkpoint back.")
    copying(back)
    back.add_argument("--into", required=True, help="directory that it appears in under its old name")

    action("list", _list, "Say what the archive holds of a run.")

    less = action("prune", _prune, "Remove what a retention policy lets go.", store=False)
    less.add_argument("--keep-last", type=_positive, help="so many of the newest stay; without it none is removed")
    less.add_argument("--keep-every", type=_positive, help="multiples of this step stay")
    less.add_argument("--keep-for", type=_seconds, help="younger ones stay, e.g. 30d")
    less.add_argument(
        "--pin", action="append", default=[], help="stays: a2/step-300 or step-300, or its path with --root"
    )
    less.add_argument(
        "--quarantined",
        type=_save,
        action="append",
        default=[],
        help="does not count: a2/step-300, or 300 of any; a2/step-300+ is all from there on of attempts up to that",
    )
    less.add_argument("--root", default="", help="prune the shared tier below this directory instead of the archive")
    less.add_argument("--format", default="Auto", help="of the checkpoints below --root")
    less.add_argument("--layout", choices=("PerAttempt", "Shared"), default="PerAttempt", help="below --root")
    less.add_argument(
        "--reached", type=int, default=0, help="step; numbers far beyond it below --root are none, and stay"
    )
    less.add_argument("--dry-run", action="store_true", help="only say what would go")
    return parser


def _size(words: str) -> int:
    matched = re.fullmatch(r"([0-9]+)(KiB|MiB|GiB)?", words)
    if matched is None or int(matched[1]) == 0:
        raise argparse.ArgumentTypeError(f"{words!r}: write bytes, or 512KiB, 64MiB, 1GiB")
    return int(matched[1]) * _UNITS[matched[2] or ""]


def _save(words: str) -> Save:
    if words.isdecimal():
        return Save(int(words))
    try:
        place = ArchiveKey.parse("any", words.removesuffix("+"))
    except RecordError as error:
        raise argparse.ArgumentTypeError(f"{error}, or 300 for that step of any attempt") from None
    return (SavesFrom if words.endswith("+") else Save)(place.step, place.attempt)


def _seconds(words: str) -> float:
    try:
        return float(parse_duration(words))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(words: str) -> int:
    if not words.isdecimal() or int(words) < 1:
        raise argparse.ArgumentTypeError(f"{words!r} is not a positive whole number")
    return int(words)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads may hang in a read from a dead file server
