"""`lockstep submit`: which of its flags go together, and what is done with them."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from typer import Argument

from lockstep.cli.errors import UsageError
from lockstep.cli.options import Target, flag, verb
from lockstep.cli.submission.flags import Creation, Flags, Schedule
from lockstep.cli.submission.slurm_flags import SubmitCommand

app = typer.Typer()


@verb(
    app,
    "submit",
    "lockstep submit run.yaml",
    "lockstep submit --nodes 2 --image IMAGE -- torchrun train.py",
    "lockstep submit -N 2 --gpu-type H100 --code . --volume data:/data --image IMAGE -- python train.py",
    "lockstep submit run.yaml -N 4 --test-only",
    cls=SubmitCommand,
)
def submit(
    target: Target,
    arguments: Annotated[list[str] | None, Argument(metavar="FILE | -- COMMAND...", show_default=False)] = None,
    name: Annotated[str | None, flag("--name", "Name of the run.")] = None,
    *,
    flags: Flags,
    schedule: Schedule,
    origin: Annotated[str, flag("--from RUN", "Start from that run's newest checkpoint.")] = "",
    array: Annotated[str, flag("--array -a INDICES", "A run for each index: 0-99, 0-99:2 or 1,3,7-9%2.")] = "",
    stop_on_failure: Annotated[
        bool, flag("--stop-on-failure", "Of an array: once an index has failed, what waits is cancelled.")
    ] = False,
    creation: Creation,
) -> None:
    """Create a run from a manifest (- for standard input), or from flags and a command after --."""
    from lockstep.api.base import names
    from lockstep.cli import runs
    from lockstep.cli.output import note, print_done
    from lockstep.cli.submission import array_manifests, code, manifests, queue_defaults, submit
    from lockstep.cli.submission.going_on import start_from
    from lockstep.cli.submission.test_only import show_start
    from lockstep.cli.submission.verdicts import tell_verdicts

    creation.check(flags, schedule)
    wait, test_only, creates = creation.wait, creation.test_only, creation.dry_run == "none"
    if array and (wait or test_only):
        raise UsageError("--wait and --test-only are for single runs", "leave --array out to ask for one of them")
    cluster, batch, added, queue = None, {}, list[str](), flags.queue or names.DEFAULT_QUEUE
    if arguments and creation.dry_run != "client" and not manifests.are_a_manifest(arguments, flags):
        cluster = target.connect()
        batch = queue_defaults.batch_of(cluster, queue)
        flags, added = queue_defaults.filled(flags, arguments, batch, has_origin=bool(origin))
    wanted = manifests.manifests_of(arguments or (), flags, name)
    for manifest in wanted:
        schedule.put_into(manifest, time.time())
        named = manifest["metadata"].get("namespace")
        if target.namespace and named and target.namespace != named:
            raise UsageError(f"the manifest says namespace {named}, -n says {target.namespace}")
    if origin:
        cluster = cluster or target.connect()
        for manifest in submit.each_in_its_namespace(cluster, wanted):
            start_from(manifest, runs.fetch(cluster, origin))
    if array:
        wanted = [array_manifests.wrapped(manifest, array) for manifest in wanted]
    for manifest in wanted:
        if not array_manifests.is_set(manifest):
            array_manifests.refuse_outside_of_arrays(manifest)
        elif wait or test_only:
            raise UsageError("--wait and --test-only are for single runs", "leave --array out to ask for one of them")
        if stop_on_failure and not array_manifests.is_set(manifest):
            raise UsageError("--stop-on-failure is for arrays", "add --array, or leave it out")
        if stop_on_failure:
            array_manifests.stop_on_failure(manifest)
    packed = code.packed_for(wanted, flags.code, flags.code_claim)
    if creation.dry_run == "client":
        submit.show_unsent([*code.shown_with(wanted, packed), *wanted], creation.output)
        return
    if wait and len(wanted) > 1:
        raise UsageError("--wait needs a manifest with one run")
    cluster = cluster or target.connect()
    for manifest in wanted if batch else ():
        added += queue_defaults.put_into(manifest, batch)
    if added:
        note(f"queue {queue} adds {', '.join(added)}")
    if creates:
        submit.name_user(cluster, wanted)
    submit.refuse_any_wrong(cluster, wanted, packed, look_up=not creation.no_wait, is_question=test_only)
    created = []
    for manifest in submit.each_in_its_namespace(cluster, wanted):
        if packed is not None and packed.to is not None and creates and not test_only:
            submit.create(cluster, manifest, dry_run=True)  # a name that is taken is told before anything is copied
        with code.sent_along(cluster, manifest, packed, dry_run=creation.asks_server, keep=not test_only) as sent:
            if test_only:
                show_start(cluster, manifest, creation.output, sent)
                continue
            raw = submit.create(cluster, manifest, dry_run=creation.asks_server, sent=sent)
        print_done(raw, creation.output, creation.done)
        if creates:
            submit.tell_limit(cluster, raw)
        if creates and wait:
            submit.await_end(cluster, raw)
        elif creates:
            created.append(raw)
    if created and not creation.no_wait:
        raise typer.Exit(tell_verdicts(cluster, created))
