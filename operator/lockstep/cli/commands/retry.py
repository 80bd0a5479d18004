"""`lockstep retry`: what it changes, and with which flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import typer
from typer import Argument

from lockstep.cli.errors import UsageError
from lockstep.cli.options import ObjectOutput, Run, Target, flag, verb
from lockstep.cli.submission.flags import Flags, Schedule

app = typer.Typer()


@verb(
    app,
    "retry",
    "lockstep retry hello",
    "lockstep retry hello -f corrected.yaml",
    "lockstep retry hello --image IMAGE -- torchrun train.py",
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
    hold: Annotated[bool, flag("--hold -H", "Wait until it is released.")] = False,
    wait: Annotated[bool, flag("--wait", "Stay until the end; fail unless it succeeds.")] = False,
    no_wait: Annotated[
        bool, flag("--no-wait", "Create it whatever it lacks; don't see for 2 s what comes of it.")
    ] = False,
    dry_run: Annotated[
        Literal["none", "client", "server"], flag("--dry-run", "client prints the manifest; server asks.")
    ] = "none",
    output: ObjectOutput = "name",
) -> None:
    """Go on from the newest checkpoint of a run that has ended: a new run takes its place, as it was or corrected."""
    import time

    from lockstep.cli.output import note, print_done
    from lockstep.cli.submission import array_manifests, code, going_on, manifests, submit
    from lockstep.cli.submission import retry as retries
    from lockstep.cli.submission.taken_names import refuse_taken
    from lockstep.cli.submission.verdicts import tell_verdicts

    if wait and no_wait:
        raise UsageError("--wait stays until the end, --no-wait not at all: leave one of them out")
    cluster = target.connect()
    raw = retries.ended(cluster, run)
    old = raw["metadata"]["name"]
    manifest, left = (manifests.read_one_run(file), []) if file else going_on.again(raw)
    if not isinstance(manifest["metadata"], dict) or not isinstance(manifest.get("spec") or {}, dict):
        raise UsageError(f"{file} has metadata or a spec that is no object")
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "generateName"}
    if metadata.get("namespace", cluster.namespace) != cluster.namespace:
        raise UsageError(f"{file} says namespace {metadata['namespace']}, and {old} is in {cluster.namespace}")
    manifest["metadata"] = metadata | {"name": name or metadata.get("name") or old, "namespace": cluster.namespace}
    manifests.lay_over(manifest, replace(flags, command=tuple(command or ())).fields())
    if not file:
        going_on.forget_start(manifest)
    words = going_on.start_after(manifest, raw, step=step, fresh=fresh)
    replace(schedule, hold=hold).put_into(manifest, time.time())
    array_manifests.refuse_outside_of_arrays(manifest)
    going_on.put_record(manifest, raw)
    in_place = retries.takes_its_place(raw, manifest)
    packed = code.packed_for([manifest], flags.code)
    if dry_run == "client":
        submit.show_unsent([*code.shown_with([manifest], packed), manifest], output)
        return
    refuse_taken(cluster, manifest)  # before the old one is deleted
    submit.refuse_wrong(cluster, manifest, look_up=not no_wait, made=code.made_for(manifest, packed))
    if dry_run == "none":
        submit.name_user(cluster, [manifest])
    with code.sent_along(cluster, manifest, packed, dry_run=dry_run == "server", keep=True):
        if dry_run == "server" and in_place:
            retries.ask(cluster, manifest)
            made = manifest
        elif in_place:
            made = retries.replace_run(cluster, raw, manifest)
        else:
            made = submit.create(cluster, manifest, dry_run=dry_run == "server")
    print_done(made, output, "created (server dry run)" if dry_run == "server" else "created")
    if dry_run == "server":
        return
    over = f"; {', '.join(left)} of {old} is over and left out" if left else ""
    note(f"{made['metadata']['name']} {words}{over}.")
    if wait:
        submit.await_end(cluster, made)
    elif not no_wait and (verdict := tell_verdicts(cluster, [made])):
        raise typer.Exit(verdict)
