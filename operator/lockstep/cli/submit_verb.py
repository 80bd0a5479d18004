"""`lockstep submit`: its flags, which of them go together, and what is done with them."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from lockstep.cli.errors import UsageError
from lockstep.cli.options import Context, Kubeconfig, Namespace, ObjectOutput

app = typer.Typer()


@app.command("submit")
def submit_verb(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="FILE | -- COMMAND...", show_default=False)] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-N", min=1, help="Whole nodes; 1 by default.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="Image of the training container.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", min=0, help="All by default.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Queue to wait in.")] = None,
    launcher: Annotated[
        Literal["Plain", "Torchrun", "JAX"] | None, typer.Option("--launcher", help="How a node's processes start.")
    ] = None,
    checkpoint_claim: Annotated[
        str | None, typer.Option("--checkpoint-claim", metavar="CLAIM", help="Claim of the shared checkpoint tier.")
    ] = None,
    shm_size: Annotated[str | None, typer.Option("--shm-size", metavar="SIZE", help="E.g. 200Gi.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="May be repeated.")] = None,
    nodelist: Annotated[
        str | None, typer.Option("--nodelist", "-w", metavar="NODES", help="Only these nodes, by comma.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option("--exclude", "-x", metavar="NODES", help="Not these nodes, by comma.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time", "-t", metavar="TIME", help="Time limit: 2h, or as in Slurm 90 or 1-12:00.")
    ] = None,
    time_min: Annotated[
        str | None, typer.Option("--time-min", metavar="TIME", help="It may be cut to this, to start sooner.")
    ] = None,
    priority_class: Annotated[str | None, typer.Option("--priority-class", metavar="NAME")] = None,
    nice: Annotated[int | None, typer.Option("--nice", min=0, help="Points of priority to give up.")] = None,
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Not before: 2026-12-01T08:00, 18:00, now+2h.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Only if its time limit ends before.")
    ] = None,
    dependency: Annotated[
        str | None,
        typer.Option(
            "--dependency",
            "-d",
            metavar="LIST",
            help="afterok:RUN[:RUN], afterany, afternotok, after, singleton=WORD; of arrays aftercorr:NAME.",
        ),
    ] = None,
    array: Annotated[
        str, typer.Option("--array", "-a", metavar="INDICES", help="A run for each index: 0-99, 0-99:2 or 1,3,7-9%2.")
    ] = "",
    hold: Annotated[bool, typer.Option("--hold", "-H", help="Wait until it is released.")] = False,
    test_only: Annotated[bool, typer.Option("--test-only", help="Only ask when and where it would start.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the end; fail unless it succeeds.")] = False,
    dry_run: Annotated[
        Literal["none", "client", "server"], typer.Option("--dry-run", help="client prints the manifest; server asks.")
    ] = "none",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create a run from a manifest (- for standard input), or from flags and a command after --."""
    from lockstep.cli import arrays, submit, trial
    from lockstep.cli.client import connect
    from lockstep.cli.manifests import Flags, manifests_of
    from lockstep.cli.refusals import refuse_bad
    from lockstep.cli.schedule import Schedule

    schedule = Schedule(time_limit, time_min, priority_class, nice, begin, deadline, dependency, hold)
    flags = Flags(
        nodes=nodes,
        image=image,
        gpus_per_node=gpus_per_node,
        queue=queue,
        launcher=launcher,
        claim=checkpoint_claim,
        shm_size=shm_size,
        env=env or (),
        only_nodes=_listed(nodelist),
        exclude_nodes=_listed(exclude),
    )
    manifests = manifests_of(arguments or (), flags, name)
    for manifest in manifests:
        schedule.put_into(manifest, time.time())
    if array:
        manifests = [arrays.wrapped(manifest, array) for manifest in manifests]
    for manifest in manifests:
        if not arrays.is_set(manifest):
            arrays.refuse_outside_of_arrays(manifest)
        elif wait or test_only:
            raise UsageError("--wait and --test-only are for single runs", "leave --array out to ask for one of them")
    if dry_run == "client":
        submit.show_unsent(manifests, output)
        return
    if wait and len(manifests) > 1:
        raise UsageError("--wait needs a manifest with one run")
    if test_only and (wait or dry_run != "none"):
        raise UsageError("--test-only starts nothing: leave --wait and --dry-run out")
    cluster = connect(namespace, context, kubeconfig)
    if dry_run == "none":
        submit.name_user(cluster, manifests)
    for manifest in manifests:
        said = manifest["metadata"].get("namespace")
        if namespace and said and namespace != said:
            raise UsageError(f"the manifest says namespace {said}, -n says {namespace}")
        cluster.namespace = said or cluster.namespace
        refuse_bad(manifest, submit.namespace_labels(cluster, cluster.namespace))
        if test_only:
            trial.show(cluster, manifest, output)
            continue
        raw = submit.create(cluster, manifest, dry_run=dry_run == "server")
        submit.show_created(raw, output, dry_run=dry_run == "server")
        if wait and dry_run == "none":
            submit.await_end(cluster, raw)


def _listed(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()] if words else []
