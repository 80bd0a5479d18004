"""`lockstep sbatch`: a batch script becomes a run or an array, and is answered as sbatch answers."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.api.base import names
from lockstep.cli import client, output
from lockstep.cli.client import Cluster, Json
from lockstep.cli.errors import ApiServerError, CliError, ExitCode
from lockstep.cli.submission import array_manifests, slurm_syntax, submit, test_only
from lockstep.cli.submission.job_numbers import Numbers, await_end, await_number, refusal
from lockstep.core.batch.components import gang_of
from lockstep.core.batch.inside import CLUSTER
from lockstep.core.batch.submission import Submitted, Surroundings, WantedRun, wanted
from lockstep.slurm import getopt, scontrol
from lockstep.slurm.submission.batch import BatchRequest, OptionOutcome, batches
from lockstep.slurm.submission.directives import ScriptError, check_script, directives, wrapped
from lockstep.slurm.submission.options import OPTIONS

_OURS = getopt.options("explain dry-run kube-context: kube-namespace: kubeconfig:")
_HELP = """\
Usage: lockstep sbatch [OPTIONS OF SBATCH] [SCRIPT [ARGUMENTS]]

A batch script of Slurm is submitted as it is: from a file, from standard input, or --wrap=COMMAND. Options are those of
sbatch, also abbreviated, in #SBATCH lines and in SBATCH_* of the environment. Beside them:

  --explain              Show what becomes of each option, and submit nothing.
  --dry-run              Print the manifest, and submit nothing.
  --kube-namespace NAME  Namespace; that of the context by default.
  --kube-context NAME    Context of the kubeconfig.
  --kubeconfig FILE      Instead of KUBECONFIG or ~/.kube/config.
"""


@dataclass(frozen=True, slots=True)
class _Typed:
    """A command line: options of ours by name, and those of sbatch with what follows them."""

    ours: Mapping[str, str]
    names: frozenset[str]
    arguments: Sequence[str]
    words: Sequence[str]  # script and its arguments
    wrap: str | None


def run(arguments: Sequence[str]) -> int:
    """Submit, or say why not. The exit code."""
    try:
        return _run(_read(arguments), os.environ)
    except getopt.OptionError as error:
        output.note(str(error).rstrip("\n"))
    except ScriptError as error:
        _complain(str(error))
    except CliError as error:
        _complain(*str(error).split("\n"), *_remedy(error))
        return error.exit_code if error.exit_code is ExitCode.TIMED_OUT else ExitCode.FAILED
    return ExitCode.FAILED


def _remedy(error: CliError) -> list[str]:
    """With the flags that are called otherwise here."""
    return [error.remedy.replace(" --context", " --kube-context")] if error.remedy else []


def _read(arguments: Sequence[str]) -> _Typed:
    found, words = getopt.read("sbatch", [*OPTIONS, *_OURS], arguments)
    own = {option.name for option in _OURS}
    theirs = [f"--{name}" if value is None else f"--{name}={value}" for name, value in found if name not in own]
    wraps = [value for name, value in found if name == "wrap"]
    return _Typed(
        {name: value or "" for name, value in found if name in own},
        frozenset(name for name, _ in found),
        [*theirs, "--", *words],
        words,
        wraps[-1] if wraps else None,
    )


def _run(typed: _Typed, environ: Mapping[str, str]) -> int:
    if typed.names & {"help", "usage", "version"}:
        output.print_lines([_HELP.rstrip("\n")] if "version" not in typed.names else [scontrol.version().rstrip("\n")])
        return ExitCode.OK
    name, script = _script(typed, environ)
    read = directives(name, script)
    for warning in read.warnings:
        output.note(f"sbatch: warning: {warning}")
    request, rows, components = gang_of(batches(read, environ, typed.arguments, _text_of, CLUSTER))
    if read.ignored_lines:
        lines = ", ".join(map(str, read.ignored_lines))
        rows.append(
            OptionOutcome("#SBATCH", f"line {lines}", "ignored", "stands behind the first command, as in Slurm")
        )
    cluster, queue = _queue(typed, request)
    if request.partitions:
        request = replace(request, partitions=(queue.name,))
    numbers = Numbers(cluster)
    around = Surroundings(queue.batch, _moment, numbers.job, _text_of)
    made = wanted(request, rows, _submitted(name, script, typed, environ), around, components)
    if "explain" in typed.ours:
        output.print_lines(table(made.rows))
        return ExitCode.FAILED if made.refusals else ExitCode.OK
    if "verbose" in typed.names:
        for line in table(made.rows):
            output.note(f"sbatch: {line}")
    return _submit(typed, request, made, cluster)


def _submit(typed: _Typed, request: BatchRequest, made: WantedRun, cluster: Cluster | None) -> int:
    if made.refusals:
        _complain(*(row.sentence for row in made.refusals), "Batch job submission failed: nothing was submitted")
        return ExitCode.FAILED
    for row in made.notices if not request.quiet else ():
        output.note(f"sbatch: {row.sentence}")
    manifest = array_manifests.wrapped(made.manifest, made.array) if made.array else made.manifest
    if "dry-run" in typed.ours:
        submit.show_unsent([manifest], "yaml")
        return ExitCode.OK
    if cluster is None:
        cluster = _connect(typed)  # says what is wrong
    submit.name_user(cluster, [manifest])
    submit.refuse_wrong(cluster, manifest)
    if request.test_only:
        raw = test_only.ask(cluster, made.manifest)
        for line in test_only.answer_lines("the job", raw, time.time()):
            output.note(f"sbatch: {line}")
        return ExitCode.OK
    raw = await_number(cluster, submit.create(cluster, manifest, dry_run=False))
    number = raw["status"]["jobId"]
    if request.parsable:
        output.print_lines([str(number)])
    elif not request.quiet:
        output.print_lines([f"Submitted batch job {number}"])
    if not request.quiet and not array_manifests.is_set(raw) and (words := refusal(raw)):
        output.note(f"sbatch: it waits: {words}")
    if not request.quiet and (told := submit.limit_told(cluster, raw)):
        output.note(f"sbatch: {told}")
    return await_end(cluster, raw) if request.wait else ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Queue:
    name: str
    batch: Json


def _queue(typed: _Typed, request: BatchRequest) -> tuple[Cluster | None, _Queue]:
    """The first of the partitions that there is, with what it has for batch jobs. Where queues may not be read, or for
    a look without a cluster, the first, which is taken to have nothing."""
    asked = request.partitions or (names.DEFAULT_QUEUE,)
    try:
        cluster = _connect(typed)
    except CliError:
        if not {"explain", "dry-run"} & set(typed.ours):
            raise
        return None, _Queue(asked[0], {})
    for name in asked:
        try:
            path = client.resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, name)
            return cluster, _Queue(name, cluster.get(path)["spec"].get("batch") or {})
        except ApiServerError as error:
            if error.status == 403:
                return cluster, _Queue(name, {})
            if error.status != 404 or not error.name:
                raise
    if not request.partitions:
        return cluster, _Queue(names.DEFAULT_QUEUE, {})
    _complain(f"invalid partition specified: {','.join(asked)}")
    raise CliError("Batch job submission failed: Invalid partition name specified")


def _connect(typed: _Typed) -> Cluster:
    ours = typed.ours
    return client.connect(ours.get("kube-namespace"), ours.get("kube-context"), ours.get("kubeconfig"))


def _script(typed: _Typed, environ: Mapping[str, str]) -> tuple[str, str]:
    """Its name and text. Raises ScriptError."""
    if typed.wrap is not None:
        if typed.words:
            raise ScriptError("Script arguments not permitted with --wrap option")
        return "wrap", wrapped(typed.wrap)
    if not typed.words:
        body, name = sys.stdin.buffer.read(), "sbatch"
    else:
        name = typed.words[0]
        try:
            body = Path(_found(name, environ.get("PATH", ""))).read_bytes()
        except OSError as error:
            raise ScriptError(f"Unable to open file {name}: {error.strerror}") from None
    check_script(body)
    try:
        return name, body.decode()
    except UnicodeDecodeError:
        raise ScriptError(f"{name} is no UTF-8, and cannot be carried to the nodes") from None


def _found(name: str, path: str) -> str:
    """Where sbatch looks for it: here, then in PATH."""
    if "/" in name or Path(name).is_file():
        return name
    places = (Path(directory or ".") / name for directory in path.split(os.pathsep))
    return next((str(place) for place in places if place.is_file() and os.access(place, os.R_OK)), name)


def _submitted(name: str, script: str, typed: _Typed, environ: Mapping[str, str]) -> Submitted:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without an entry in /etc/passwd
        user = str(os.getuid())
    return Submitted(
        script,
        name,
        typed.words[1:],
        environ.get("PWD") if _is_here(environ.get("PWD", "")) else os.getcwd(),  # type: ignore[arg-type]
        user,
        os.getuid(),
        os.getgid(),
        socket.gethostname(),
        environ,
        "" if typed.wrap is not None or not typed.words else _found(name, environ.get("PATH", "")),
    )


def _is_here(directory: str) -> bool:
    """As the shell calls it: by the link that pods have too, and not by what that leads to."""
    try:
        return bool(directory) and Path(directory).samefile(".")
    except OSError:
        return False


def _moment(option: str, text: str) -> str:
    try:
        return slurm_syntax.moment(option, text, time.time())
    except CliError as error:
        raise ValueError(f"{error}; {error.remedy}") from None


def _text_of(path: str) -> str:
    return Path(path).expanduser().read_text(encoding="utf-8", errors="replace")


def _complain(*lines: str) -> None:
    for line in lines:
        for part in line.split("\n"):
            output.note(f"sbatch: error: {part}")


def table(rows: Sequence[OptionOutcome]) -> list[str]:
    """What became of each option."""
    return output.table(
        ("OPTION", "VALUE", "HERE", "MEANS"), [(row.option, row.value, row.handling, row.words) for row in rows]
    )
