"""What a platform team may tune. Loaded by the controller, passed to every decision as an argument."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lockstep.core.model.accelerators import ACCELERATORS, Accelerators
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.pod_group_settings import PodGroupSettings
from lockstep.core.model.settings import ArchiveSettings, Breaker, Deadlines, GpuRates, PodPolicy, ScaleUpSettings
from lockstep.core.model.tiers import BANDWIDTH

BEATS_WAITED_FOR = 2
"""Heartbeats that a time has to last at whose end their absence counts: one may be lost, or late."""


class Mode(StrEnum):
    """The operator's stop switch."""

    ACTIVE = "Active"
    NO_NEW_ADMISSIONS = "NoNewAdmissions"
    REPORT_ONLY = "ReportOnly"


@dataclass(frozen=True, slots=True)
class Tunables:
    """All settings that decisions depend on. Times in seconds."""

    mode: Mode = Mode.ACTIVE
    deadlines: Deadlines = field(default_factory=Deadlines)
    breaker: Breaker = field(default_factory=Breaker)
    gang: GangSettings = field(default_factory=GangSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    pod_groups: PodGroupSettings = field(default_factory=PodGroupSettings)
    scale_up: ScaleUpSettings = field(default_factory=ScaleUpSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    pod_policy: PodPolicy = field(default_factory=PodPolicy)
    topology_levels: Mapping[str, str] = field(  # level -> node label, narrowest first
        default_factory=lambda: {
            "rack": "topology.kubernetes.io/rack",
            "zone": "topology.kubernetes.io/zone",
        }
    )
    gpu_types: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {
            "A100": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
            "H100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "H200": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        }
    )
    accelerators: Accelerators = field(default_factory=lambda: ACCELERATORS)  # what counts as GPUs, in order
    bandwidth: Mapping[str, float] = field(default_factory=lambda: BANDWIDTH)  # B/s by tier; local: of one node
    gpu_rates: Mapping[str, GpuRates] = field(default_factory=dict)  # by GPU type
    heartbeat_min: float = 2.0
    heartbeat_max: float = 10.0
    workers_per_second: float = 800.0
    progress_write_interval: float = 30.0
    steps_stopped_after: float = 30.0  # no step for this long, and longer than three usual steps
    slot_retries_on_node: int = 2
    backoff_base: float = 10.0
    backoff_max: float = 300.0
    stop_grace: int = 30
    max_debug_hold: int = 28_800  # after the end of a run, however long its debugHold
    longest_grace: int = 3600  # of a pod that is deleted, whatever its template says
    fence_seconds: float = 60.0  # with layout Shared: without operator and steps, after which a child is ended
    max_clock_skew: float = 30.0  # seconds by which a node's clock may differ from those of the gang
    drain_taints: tuple[str, ...] = ()  # keys of node taints that mean: leave, after a save
    excluded_node_seconds: float = 86_400.0
    taint_suspects: bool = False  # whether nodes that failed repeatedly are tainted, for everybody to see
    excluded_shortly_seconds: float = 900.0  # for what a node may get over by itself, the first time in a day

    def heartbeat_seconds(self, workers: int) -> float:
        """So that all workers together send at most ``workers_per_second`` reports a second."""
        return min(self.heartbeat_max, max(self.heartbeat_min, workers / self.workers_per_second))

    @property
    def longest_stop(self) -> float:
        """Seconds after its time limit by which the nodes of a run are free at the latest: its ranks have had their
        time, its workers theirs to leave, and the pods that are deleted then theirs."""
        return self.deadlines.stop + 2 * self.stop_grace

    def silent_after(self, workers: int) -> float:
        """Seconds without a report after which a worker counts as silent: three beats and a margin."""
        return 3 * self.heartbeat_seconds(workers) + 2.0


def heartbeat_problems(tunables: Tunables) -> list[str]:
    """Which times do not go together with the longest heartbeat, by the names that people write, and what to do."""
    longest = tunables.heartbeat_max
    problems = []
    if tunables.heartbeat_min > longest:
        words = f"heartbeatMin: {tunables.heartbeat_min:g} s is longer than heartbeatMax, {longest:g} s"
        problems.append(f"{words}; lower it, or raise heartbeatMax")
    least = BEATS_WAITED_FOR * longest
    for name, seconds, why in (
        ("stepsStoppedAfter", tunables.steps_stopped_after, "steps that go on would count as stopped between two"),
        ("fenceSeconds", tunables.fence_seconds, "workers that are heard would end their programs between two"),
    ):
        if seconds < least:
            words = f"{name}: {seconds:g} s is less than twice heartbeatMax, {longest:g} s: {why} heartbeats"
            problems.append(f"{words}; raise it to {least:g}, or lower heartbeatMax")
    return problems
