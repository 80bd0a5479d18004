"""`lockstep queues`: what each TrainingQueue may use, uses and borrows, and what is pending in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockstep.api.base import names
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.cli import output
from lockstep.cli.client import Cluster, Json, resource_path
from lockstep.cli.errors import if_forbidden

COLUMNS = ("QUEUE", "COHORT", "TYPE", "NODES", "QUOTA", "BORROWED", "PENDING", "RUNNING", "STOP")
WIDE_COLUMNS = ("MAY-BORROW", "LENDS", "WEIGHT", "GPU-HOURS", "HELD")


def show(cluster: Cluster, form: str) -> None:
    """Print the queues. Raises CliError, with the remedy, where they may not be read."""
    with if_forbidden(
        "queues belong to the whole cluster: ask for a ClusterRoleBinding to view; "
        "what your own runs wait for, lockstep queue says"
    ):
        found = cluster.list(resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES))
    if form not in ("table", "wide"):
        output.print_object(found, form)
        return
    items = sorted(found["items"], key=lambda raw: raw["metadata"]["name"])
    output.print_lines(listing(items, form == "wide") if items else ())
    if all(raw["metadata"]["name"] != names.DEFAULT_QUEUE for raw in items):
        output.note(
            "There is no TrainingQueue default: runs that name no queue wait in it all the same, without limits."
        )


def listing(items: Sequence[Json], wide: bool) -> list[str]:
    """The table, header first: a line for each GPU type of a queue's quotas."""
    header = (*COLUMNS, *(WIDE_COLUMNS if wide else ()))
    return output.table(header, [row for raw in items for row in _rows(raw, wide)])


def _rows(raw: Json, wide: bool) -> Iterator[list[str]]:
    spec = TrainingQueueSpec.model_validate(raw.get("spec") or {})
    status = TrainingQueueStatus.load(raw.get("status"))
    usage = {each.gpu_type: each for each in status.usage}
    first = [raw["metadata"]["name"], spec.cohort or ""]
    counts = [str(status.pending), str(status.running), "" if spec.stop_policy == "None" else spec.stop_policy]
    hours = status.gpu_hours_last_day
    held = str(len(spec.held_runs)) if spec.held_runs else ""
    rest = [str(spec.fair_sharing.weight), "" if hours is None else str(hours), held]
    if not spec.quotas:
        yield [*first, "", str(status.nodes_in_use), "", "", *counts, *(["", "", *rest] if wide else [])]
    for number, quota in enumerate(spec.quotas):
        used = usage.get(quota.gpu_type)
        nodes = [str(used.nodes if used is not None else 0), str(quota.nominal_nodes)]
        row = [*first, quota.gpu_type, *nodes, str(used.borrowed) if used is not None and used.borrowed else ""]
        row += counts if not number else [""] * len(counts)
        if wide:
            bounds = (quota.borrowing_limit, quota.lending_limit)
            row += [("all" if bound is None else str(bound)) if spec.cohort else "" for bound in bounds]
            row += rest if not number else [""] * len(rest)
        yield row
