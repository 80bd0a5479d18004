"""What the operator keeps for itself, where the user may read it: its settings, and its book of who used how much."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import yaml
from pydantic import ValidationError

from lockstep.api.base import names
from lockstep.cli.client import Cluster, Json, core_path
from lockstep.cli.errors import ApiServerError
from lockstep.config import OperatorConfig
from lockstep.core.admission.cache.entry import is_pending
from lockstep.core.admission.queueing.fair_share import ChargedUsage, Key, UsageBook, admissible, competes, shares
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.pod_group_settings import PodGroupSettings
from lockstep.core.model.snapshot import QueueView, RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.model.tunables import Tunables

NAMESPACE = "lockstep-system"
"""Where the operator runs, unless somebody says otherwise."""
CONFIG_MAP, _FILE = "lockstep-operator", "operator.yaml"  # by the chart, whatever its release is called
_DECISIVE = (
    "mode",
    "namespaces",
    "admission",
    "topologyLevels",
    "gpuTypes",
    "accelerators",
    "deadlines",
    "drainTaints",
)
"""What an admission pass looks at. The rest may be of a newer version than this program."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """``unread`` says why these are only the defaults; empty: they are the operator's own.

    ``namespaces``: whose runs it looks after; all when empty.
    """

    tunables: Tunables
    namespaces: tuple[str, ...] = ()
    unread: str = ""


def read_settings(cluster: Cluster, namespace: str) -> OperatorSettings:
    """The settings of the operator that runs in ``namespace``."""
    where = f"ConfigMap {CONFIG_MAP} of namespace {namespace}"
    try:
        found = cluster.get(core_path(namespace, "configmaps", CONFIG_MAP))
        written = yaml.safe_load(found["data"][_FILE]) or {}
        config = OperatorConfig.model_validate({name: written[name] for name in _DECISIVE if name in written})
    except ApiServerError as error:
        if error.status not in (403, 404):
            raise
        why = f"you may not read {where}" if error.status == 403 else f"there is no {where}"
        return OperatorSettings(Tunables(), unread=why)
    except (KeyError, TypeError, yaml.YAMLError, ValidationError):
        return OperatorSettings(Tunables(), unread=f"what is in {where} is not for this version")
    # Which kind of PodGroup there is takes a discovery, and nobody's nodes depend on it.
    tunables = replace(config.tunables(config.gang(b"")), pod_groups=PodGroupSettings())
    return OperatorSettings(tunables, config.namespaces)


def fair_shares(
    cluster: Cluster,
    namespace: str,
    views: Iterable[RunView],
    queues: Mapping[str, QueueView],
    namespace_labels: Mapping[str, Mapping[str, str]],
    settings: OperatorSettings,
    now: float,
) -> Mapping[Key, float]:
    """Everybody's factor: by the operator's book, or else as pending runs have it in status."""
    runs, rules = list(views), settings.tunables.admission
    book = _read_book(cluster, namespace)
    if book is None:
        return reported_shares(runs, rules.weights.fair_share)
    weights = {name: queue.spec.fair_sharing.weight for name, queue in queues.items()}
    competing = {share_key(run) for run in runs if competes(run) and not is_test_only(run)}
    present = admissible(competing, queues, namespace_labels)
    return shares(book.advanced(now, ChargedUsage.from_runs(runs), rules.half_life), weights, present)


def reported_shares(runs: Iterable[RunView], weight: int) -> Mapping[Key, float]:
    """Read off the points in the newest word to anybody who is charged alike."""
    told: dict[Key, tuple[float, float]] = {}
    for run in runs:
        queue = run.status.queue
        if weight and queue.updated is not None and is_pending(run) and not run.status.admission.requeued_for:
            share = min(1.0, queue.factors.get("fairShare", 0) / weight)
            told[share_key(run)] = max(told.get(share_key(run), (0.0, 0.0)), (queue.updated, share))
    return {key: share for key, (_, share) in told.items()}


def _read_book(cluster: Cluster, namespace: str) -> UsageBook | None:
    try:
        found: Json = cluster.get(core_path(namespace, "configmaps", names.USAGE_CONFIG_MAP))
        return UsageBook.load(json.loads(found["data"][names.USAGE_FILE]))
    except ApiServerError as error:
        if error.status not in (403, 404):
            raise
    except (KeyError, TypeError, ValueError):
        pass
    return None
