"""What the page is made from: the operator's own view of the cluster, by functions that only read."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.controller.runtime.recent_events import RecentEvent
from lockstep.core.model.accelerators import ACCELERATORS, Accelerators
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.snapshot import NodeView, PodView, QueueView, Resources, RunView
from lockstep.core.model.worker_report import WorkerReport


@dataclass(frozen=True, slots=True)
class PageSources:
    """Nothing here writes, and nothing asks the API server.

    ``levels``: topology level to node label, narrowest first. ``gpu_types``: name to the labels that make one.
    ``accelerators``: what counts as GPUs.
    """

    synced: Callable[[], bool]
    leading: Callable[[], bool]
    runs: Callable[[], Iterable[RunView]]
    run: Callable[[str, str], RunView | None]
    queues: Callable[[], Iterable[QueueView]]
    nodes: Callable[[], Collection[NodeView]]
    pods_of: Callable[[str], Sequence[PodView]]
    foreign_requests: Callable[[], Mapping[str, Resources]]
    reports: Callable[[str], Mapping[int, WorkerReport]]
    run_sets: Callable[[], Iterable[RunSetView]]
    run_set: Callable[[str, str], RunSetView | None]
    events: Callable[[str], Sequence[RecentEvent]]
    levels: Mapping[str, str]
    gpu_types: Mapping[str, Mapping[str, str]]
    accelerators: Accelerators = field(default_factory=lambda: ACCELERATORS)
