"""No pod is on a node when its maintenance begins, however long the stop takes of a run that was to end before."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.core.decide import decide
from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.assignment import is_held
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import DesiredPhase, Plan
from lockstep.core.model.settings import Deadlines
from lockstep.core.model.snapshot import PodView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.gang import termination_grace
from support.world import Worker, World, node, spec, world

PATIENT = Deadlines(ready=86_400.0)  # a gang that gathers does not give up before its limit
LONG_GRACE = {"spec": {"terminationGracePeriodSeconds": 900}}


@dataclass
class Stubborn(World):
    """Ranks hear no order to stop, no save comes to its end, and pods use all of their grace."""

    gathers: bool = False  # the gang never gets beyond the barrier
    killed_at: dict[str, float] = field(default_factory=dict)  # by pod UID

    def _obey(self, pod: PodView, worker: Worker) -> None:
        orders = self.directives.get(pod.run_uid)
        deaf = orders is not None and orders.phase in (DesiredPhase.STOP, DesiredPhase.COMPLETE)
        if not deaf and not (self.gathers and worker.slot == 1):
            super()._obey(pod, worker)

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        for gone in plan.deletes:
            run = self.runs[name].spec
            assert run is not None
            own = termination_grace(run, self.tunables.gang)
            self.killed_at.setdefault(gone.uid, self.now + (own if gone.grace is None else gone.grace))
        super()._execute(name, plan, crash_after)

    def kubelets(self) -> None:
        lingering = {n: pod for n, pod in self.pods.items() if pod.deleting and self.now < self.killed_at[pod.uid]}
        self.pods = {n: pod for n, pod in self.pods.items() if n not in lingering}
        super().kubelets()
        self.pods |= lingering

    def run_until(self, moment: float) -> None:
        """From one moment at which anybody has to act to the next."""
        while True:
            self.settle()
            wakes = [decide(self.snapshot(name), self.tunables, self.now).wake_at for name in self.runs]
            times = [at for at in (*wakes, *self.killed_at.values()) if at is not None and at > self.now]
            if self.now >= moment:
                return
            self.now = min([moment, *times])


def stubborn(limit: str, begins: float, **fields: Any) -> Stubborn:
    """A run that starts now, on nodes whose maintenance begins so many seconds after its limit."""
    w = Stubborn({f"n{i}": node(f"n{i}") for i in range(2)}, listens=True, saves_succeed=False)
    window = MaintenanceWindow("firmware", w.now + parse_duration(limit) + begins, 3600.0)
    w.tunables = Tunables(deadlines=PATIENT, admission=AdmissionSettings(windows=(window,)))
    w.gathers = fields.pop("gathers", False)
    w.apply("one", spec(2, timeLimit=limit, recovery={"hangTimeout": "Disabled"}, **fields))
    return w


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "action"), [("2m", "Fail"), ("2m", "Requeue"), ("2h", "Requeue")])
@pytest.mark.parametrize(
    "fields",
    [
        {"onTimeLimit": {"leadTime": "10m"}},
        {"onTimeLimit": {"leadTime": "30s"}},
        {"onTimeLimit": {"leadTime": "9h"}},
        {"checkpoint": None},
        {"gathers": True},
        {"checkpoint": None, "podTemplate": LONG_GRACE},
        {"worker": "Disabled", "checkpoint": None},
        {"worker": "Disabled", "checkpoint": None, "podTemplate": LONG_GRACE},
    ],
    ids=[
        "trains",
        "saves late",
        "saves early",
        "saves nothing",
        "gathers",
        "has time to end",
        "has no worker",
        "has no worker and time to end",
    ],
)
def test_when_a_window_begins_whoever_was_to_end_before_is_gone(
    limit: str, action: str, fields: dict[str, Any]
) -> None:
    how = {**fields, "onTimeLimit": {**fields.get("onTimeLimit", {}), "action": action}}
    w = stubborn(limit, Tunables().longest_stop + 1, **how)  # it starts a moment later
    w.settle()
    assert is_held(w.status("one").assignment)
    begun, [window] = w.now, w.tunables.admission.windows
    w.run_until(begun + parse_duration(limit) / 2 - 5)
    assert phase_of(w.status("one"), suspended=False) in (Phase.RUNNING, Phase.LAUNCHING)
    w.run_until(window.start)
    assert w.status("one").attempts or fields.get("gathers")
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]
    assert phase_of(w.status("one"), suspended=False) in (Phase.PENDING, Phase.FINISHED)


@pytest.mark.parametrize(("limit", "grace"), [("2m", 900), ("2h", 5000)])
def test_pods_without_a_worker_have_half_of_the_limit_to_end_where_their_grace_is_longer(
    limit: str, grace: int
) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": grace}}
    w = stubborn(limit, Tunables().longest_stop + 1, worker="Disabled", checkpoint=None, podTemplate=template)
    w.settle()
    ends = w.now + parse_duration(limit)
    w.run_until(ends - parse_duration(limit) // 2 + 1)
    assert [*w.killed_at.values()] == pytest.approx([ends, ends], abs=1.5)


@pytest.mark.parametrize("how", ["suspend", "cancel", "fails"])
def test_pods_that_are_ended_shortly_before_that_have_no_longer(how: str) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": 5000}}
    fields: dict[str, Any] = {"worker": "Disabled", "checkpoint": None, "podTemplate": template}
    w = stubborn("2h", Tunables().longest_stop + 1, **fields)
    w.settle()
    ends = w.now + 7200
    w.run_until(ends - 3610)
    if how == "fails":
        w.end_pod("one", 0, 1)
    else:
        w.apply("one", spec(2, timeLimit="2h", recovery={"hangTimeout": "Disabled"}, **{**fields, how: True}))
    w.run_until(ends - 3500)
    assert w.killed_at
    assert max(w.killed_at.values()) <= ends + 1
    w.run_until(w.tunables.admission.windows[0].start)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["suspend", "cancel"])
def test_a_save_for_a_stop_that_began_before_the_limit_is_awaited_no_longer_than_until_then(how: str) -> None:
    fields: dict[str, Any] = {"checkpoint": {"shared": {"claimName": "lustre"}, "gracePeriod": "1h"}}
    w = stubborn("2h", Tunables().longest_stop + 1, **fields)
    w.settle()
    ends = w.now + 7200
    w.run_until(ends - 700)
    w.apply("one", spec(2, timeLimit="2h", recovery={"hangTimeout": "Disabled"}, **{**fields, how: True}))
    w.run_until(ends - 690)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert (save.outcome, save.deadline) == ("", int(ends))
    w.run_until(w.tunables.admission.windows[0].start)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_pods_whose_grace_is_over_by_the_limit_keep_it() -> None:
    w = stubborn("2h", Tunables().longest_stop + 1, worker="Disabled", checkpoint=None, podTemplate=LONG_GRACE)
    w.settle()
    ends = w.now + 7200
    w.apply("one", changed(w.runs["one"].spec, cancel=True))  # type: ignore[union-attr]
    w.run_until(ends - 7000)
    assert [killed - ends for killed in w.killed_at.values()] == pytest.approx([900 - 7200] * 2, abs=1)


@pytest.mark.parametrize("limit", ["20m", "2h"])
def test_one_that_could_be_there_still_does_not_start(limit: str) -> None:
    w = stubborn(limit, Tunables().longest_stop - 1)
    w.settle()
    assert not is_held(w.status("one").assignment)
    assert w.status("one").queue.reason == "Window"


@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
def test_nodes_of_a_gang_that_is_not_to_save_are_mostly_free_by_the_limit_itself(worker: str) -> None:
    """So much others count on who are promised a start."""
    w = world(2, tunables=Tunables(deadlines=PATIENT), directives_reach=0)
    w.roll_out("one", spec(2, timeLimit="20m", worker=worker, checkpoint=None))
    begun = w.now
    w.pass_time(1100, step=20)
    assert phase_of(w.status("one"), suspended=False) is (Phase.LAUNCHING if worker == "Enabled" else Phase.RUNNING)
    w.pass_time(begun + 1200 - w.now, step=5)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_pods_without_a_worker_are_ended_by_a_short_limit_whatever_grace_ranks_usually_have() -> None:
    w = stubborn("40s", Tunables().longest_stop + 1, worker="Disabled", checkpoint=None)
    w.settle()
    ends = w.now + 40
    w.run_until(ends - 1)
    assert [*w.killed_at.values()] == pytest.approx([ends, ends], abs=1)
