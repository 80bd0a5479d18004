"""`lockstep events`: the events of a run, oldest first."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lockstep.api.base import names
from lockstep.api.base.times import to_unix
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster, Json, resource_path
from lockstep.present.amounts import duration

COLUMNS = ("LAST-SEEN", "TYPE", "REASON", "ABOUT", "NOTE")


def show(cluster: Cluster, name: str, *, with_pods: bool, form: str) -> None:
    """Print the events of the run, and with ``with_pods`` those of its pods too."""
    raw = runs.fetch(cluster, name)
    name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
    path = resource_path("/apis/events.k8s.io/v1", cluster.namespace, "events")
    selector = f"regarding.kind={names.RUN_KIND},regarding.name={name}"
    found = cluster.list(path) if with_pods else cluster.list(path, fieldSelector=selector)
    of_pods = f"{name}-{uid[:5]}-"
    found["items"] = sorted((event for event in found["items"] if concerns(event, uid, of_pods)), key=last_seen)
    if form not in ("table", "wide"):
        output.print_object(found, form)
    elif found["items"]:
        output.print_lines(listing(found["items"], time.time()))
    else:
        output.note(f"No events of {name} are kept; lockstep history {name} reaches back further.")


def listing(events: Sequence[Json], now: float) -> list[str]:
    """The table; a repeated event says how often it was seen."""
    return output.table(COLUMNS, [_row(event, now) for event in events])


def last_seen(event: Json) -> float:
    """When the event was seen last, Unix seconds."""
    series = event.get("series") or {}
    moments = (series.get("lastObservedTime"), event.get("eventTime"), event.get("deprecatedLastTimestamp"))
    return to_unix(next(filter(None, moments), event["metadata"]["creationTimestamp"]))


def _row(event: Json, now: float) -> list[str]:
    about = event["regarding"]
    related = event.get("related") or {}
    where = f"{about['kind']}/{about['name']}" + (f", {related['kind']}/{related['name']}" if related else "")
    count = (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
    seen = duration(now - last_seen(event)) + (f" (x{count})" if count > 1 else "")
    return [seen, event.get("type", ""), event.get("reason", ""), where, event.get("note", "").replace("\n", " ")]


def concerns(event: Json, uid: str, of_pods: str) -> bool:
    """Of the run itself (not an earlier one of its name), or of a pod of it."""
    about = event.get("regarding") or {}
    return about.get("uid") == uid or (about.get("kind") == "Pod" and about.get("name", "").startswith(of_pods))
