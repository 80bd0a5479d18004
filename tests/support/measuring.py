"""A world whose workers measure: how long steps and saves take."""

from dataclasses import replace

from lockstep.api.checkpoint_status import CadenceStatus
from lockstep.core.decide import decide
from lockstep.core.model.bounds import Tier
from lockstep.core.model.plan import Plan
from lockstep.core.model.worker_report import CheckpointReport, TimingReport, Verdict
from support.world import World, node, spec


class Training(World):
    """What ``timing`` and ``tiers`` say is in every report."""

    def __init__(self) -> None:
        super().__init__({f"n{i}": node(f"n{i}") for i in range(4)})
        self.timing = TimingReport()
        self.tiers: tuple[Tier, ...] = ("shared",)
        self.listens = True

    def work(self) -> None:
        super().work()
        for run in self.runs.values():
            for slot, report in self.reports.get(run.uid, {}).items():
                rows = tuple(
                    CheckpointReport(tier, step, f"/{tier}/{step}", Verdict.VALID, attempt=report.attempt,
                                     world=2, run_uid=run.uid, committed_at=self.now)
                    for tier in self.tiers
                    for step in self.saved.get(run.uid, [])[-1:]
                )  # fmt: skip
                self.reports[run.uid][slot] = replace(
                    report, timing=self.timing, listens=self.listens, inventory=(*report.inventory, *rows)
                )

    @property
    def cadence(self) -> CadenceStatus:
        """What status says of it."""
        return self.status("llama").checkpoint.cadence

    def decide(self) -> Plan:
        """What an operator would do now."""
        return decide(self.snapshot("llama"), self.tunables, self.now)


def started(
    interval: str = "Adaptive", *, local: bool = False, archive: dict[str, object] | None = None, **timing: float
) -> Training:
    """One with a run, llama, that trains."""
    w = Training()
    w.timing = TimingReport(**timing)  # type: ignore[arg-type]
    tiers = {"shared": {"claimName": "lustre"}} | ({"local": {"storage": "nvme"}} if local else {})
    tiers |= {"archive": archive} if archive is not None else {}  # type: ignore[dict-item]
    w.tiers = ("local", "shared") if local else ("shared",)
    w.tunables = replace(w.tunables, gang=replace(w.tunables.gang, local_storages={"nvme": "/mnt/nvme"}))
    w.apply("llama", spec(2, checkpoint={**tiers, "cadence": {"interval": interval}}))
    w.settle()
    assert w.children("llama")
    return w
