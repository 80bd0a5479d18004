"""`lockstep retry`: what it changes, and with which flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from typer import Argument

from lockstep.cli.errors import UsageError
from lockstep.cli.options import Run, Target, flag, verb
from lockstep.cli.submission.flags import Creation, Flags, Schedule
from lockstep.cli.submission.slurm_flags import RetryCommand

app = typer.Typer()


@verb(
    app,
    "retry",
    "lockstep retry hello",
    "lockstep retry hello -f corrected.yaml",
    "lockstep retry hello --image IMAGE -- torchrun train.py",
    "lockstep retry hello -f corrected.yaml --test-only",
    cls=RetryCommand,
)
def retry(
    target: Target,
    run: Run,
    command: Annotated[list[str] | None, Argument(metavar="-- COMMAND...", show_default=False)] = None,
    file: Annotated[str | None, flag("--filename -f FILE", "The corrected manifest; - for standard input.")] = None,
    name: Annotated[str | None, flag("--name", "A name of its own; the old run stays.")] = None,
    *,
    flags: Flags,
    schedule: Schedule,
    step: Annotated[int | None, flag("--step STEP", "From this step, not the newest.", min=0)] = None,
    fresh: Annotated[bool, flag("--fresh", "From step 0.")] = False,
    creation: Creation,
) -> None:
    """Go on from the newest checkpoint of a run that has ended: a new run takes its place, as it was or corrected."""
    import time

    from lockstep.cli import runs
    from lockstep.cli.output import note, print_done
    from lockstep.cli.submission import array_manifests, code, going_on, manifests, submit
    from lockstep.cli.submission import retry as retries
    from lockstep.cli.submission.taken_names import refuse_taken
    from lockstep.cli.submission.test_only import show_start
    from lockstep.cli.submission.verdicts import tell_verdicts
    from lockstep.present.going_on import again, forget_start, put_record

    creation.check(flags, schedule)
    if fresh and step is not None:
        raise UsageError("--fresh begins at step 0, --step says another one", "leave one of them out")
    cluster = target.connect()
    raw = retries.ended(cluster, run)
    ended, old = runs.view(raw), raw["metadata"]["name"]
    if file:
        manifest, left = manifests.read_one_run(file), list[str]()
    else:
        manifest, left = again(ended, raw["metadata"], raw["spec"], time.time())
    if not isinstance(manifest["metadata"], dict) or not isinstance(manifest.get("spec") or {}, dict):
        raise UsageError(f"{file} has metadata or a spec that is no object")
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "generateName"}
    if metadata.get("namespace", cluster.namespace) != cluster.namespace:
        raise UsageError(f"{file} says namespace {metadata['namespace']}, and {old} is in {cluster.namespace}")
    manifest["metadata"] = metadata | {"name": name or metadata.get("name") or old, "namespace": cluster.namespace}
    manifests.lay_over(manifest, replace(flags, command=tuple(command or ())).fields())
    if not file:
        forget_start(manifest)
    words = going_on.start_after(manifest, ended, step=step, fresh=fresh)
    schedule.put_into(manifest, time.time())
    array_manifests.refuse_outside_of_arrays(manifest)
    put_record(manifest, ended)
    in_place = retries.takes_its_place(raw, manifest)
    packed = code.packed_for([manifest], flags.code, flags.code_claim)
    if creation.dry_run == "client":
        submit.show_unsent([*code.shown_with([manifest], packed), manifest], creation.output)
        return
    refuse_taken(cluster, manifest)  # before the old one is deleted
    made_along = code.made_for(manifest, packed)
    submit.refuse_wrong(cluster, manifest, look_up=not creation.no_wait, made=made_along)
    if creation.dry_run == "none":
        submit.name_user(cluster, [manifest])
    over = f"; {', '.join(left)} of {old} is over and left out" if left else ""
    told = f"{manifest['metadata']['name']} {words}{over}."
    keep = not creation.test_only
    with code.sent_along(cluster, manifest, packed, dry_run=creation.asks_server, keep=keep) as sent:
        if creation.test_only:
            note(told)
            show_start(cluster, manifest, creation.output, sent)
            return
        if creation.asks_server and in_place:
            retries.ask(cluster, manifest)
            made = manifest
        elif in_place:
            made = retries.replace_run(cluster, raw, manifest, sent, told if file else "")
        else:
            made = submit.create(cluster, manifest, dry_run=creation.asks_server, sent=sent)
    print_done(made, creation.output, creation.done)
    if creation.asks_server:
        return
    if not (file and in_place):
        note(told)
    submit.tell_limit(cluster, made)
    if creation.wait:
        submit.await_end(cluster, made)
    elif not creation.no_wait and (verdict := tell_verdicts(cluster, [made])):
        raise typer.Exit(verdict)
