"""Time limits that are changed while their runs have nodes: what is granted of a longer one, and when."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from bench.forgetful import anew
from lockstep.api.base.changes import changed
from lockstep.api.queue import QueueLimits
from lockstep.api.run_status import ResolvedStatus, StopStatus
from lockstep.core.admission import scheduling
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.backfill import backfill
from lockstep.core.admission.engine.cycle_result import CycleResult, Reservation
from lockstep.core.admission.engine.jobs import Option, RunningJob
from lockstep.core.admission.engine.quota import QuotaRules
from lockstep.core.admission.extensions import Promises, grant_limits
from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.assignment import is_held
from lockstep.core.model.limits import limit_in_force
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, node, run, statuses, world
from support.examples import examples

HOUR = 3600.0


def passed(snapshot: ClusterSnapshot, now: float = NOW, *windows: MaintenanceWindow) -> ClusterPlan:
    return admit(snapshot, Tunables(admission=AdmissionSettings(windows=windows)), now)


def trains(name: str, *nodes: str, limit: str | None = "1h", since: float = NOW, **more: Any) -> RunView:
    status = {**held(*nodes), "last_admitted": since}
    return run(name, len(nodes), at=since - 9, status=status, **{"timeLimit": limit} if limit else {}, **more)


def asks(view: RunView, limit: str | None) -> RunView:
    """The run with another time limit in its spec."""
    assert view.spec is not None
    return replace(view, spec=changed(view.spec, time_limit=limit))


def ask(snapshot: ClusterSnapshot, name: str, limit: str | None) -> ClusterSnapshot:
    runs = (asks(view, limit) if view.name == name else view for view in snapshot.runs)
    return replace(snapshot, runs=tuple(runs))


def without(snapshot: ClusterSnapshot, name: str) -> ClusterSnapshot:
    return replace(snapshot, runs=tuple(view for view in snapshot.runs if view.name != name))


def in_force(snapshot: ClusterSnapshot, name: str) -> int | None:
    [view] = [view for view in snapshot.runs if view.name == name]
    assert view.spec is not None
    limits = snapshot.queues[view.spec.queue].spec.limits if snapshot.queues else QueueLimits()
    return limit_in_force(view.spec, view.status, limits)


def granted(plan: ClusterPlan, name: str) -> tuple[int | None, str, str]:
    known = statuses(plan)[name].admission
    return known.time_limit, known.asked_limit, known.limited_by


class TestLonger:
    def test_it_holds_once_a_pass_has_granted_it_and_the_user_is_told(self) -> None:
        snapshot = ask(world([trains("a", "n0")]), "a", "7d")
        assert in_force(snapshot, "a") == HOUR
        plan = passed(snapshot)
        assert granted(plan, "a") == (7 * 86_400, "7d", "")
        assert [(each.reason, each.note) for each in plan.writes[0].events] == [
            ("TimeLimitExtended", "its time limit is 7d now")
        ]
        snapshot = after(snapshot, plan)
        assert in_force(snapshot, "a") == 7 * 86_400
        assert passed(snapshot).writes == ()

    def test_none_at_all_is_granted_too(self) -> None:
        plan = passed(ask(world([trains("a", "n0")]), "a", None))
        assert granted(plan, "a") == (None, "", "")

    def test_it_goes_no_further_than_the_beginning_of_a_window_on_its_nodes(self) -> None:
        windows = MaintenanceWindow("firmware", NOW + 2 * HOUR, HOUR, nodes=frozenset({"n1"}))
        snapshot = ask(ask(world([trains("a", "n0"), trains("b", "n1")]), "a", "7d"), "b", "7d")
        plan = passed(snapshot, NOW, windows)
        assert granted(plan, "a") == (7 * 86_400, "7d", "")
        limit, asked, why = granted(plan, "b")
        assert (limit, asked) == (2 * HOUR - 360, "7d")  # less what its stop may take
        assert why == "it would overrun the maintenance window firmware, which begins at 1970-01-01T02:16:40Z"
        [told] = [write.events[0].note for write in plan.writes if write.name == "b"]
        assert told == f"its time limit is 1h54m now, not yet all of the 7d it asks for: {why}"
        assert passed(after(snapshot, plan), NOW + 60, windows).writes == ()

    def test_a_start_that_somebody_was_promised_is_not_delayed_by_it(self) -> None:
        head, short = run("head", 4, at=1.0, timeLimit="1h"), run("short", 1, at=2.0, timeLimit="30m")
        snapshot = world([trains("holds", "n0", "n1"), head, short])
        snapshot = after(snapshot, passed(snapshot))
        assert statuses(passed(world([trains("holds", "n0", "n1"), head])))["head"].queue.estimated_start == NOW + HOUR
        snapshot = ask(snapshot, "short", "7d")
        plan = passed(snapshot, NOW + 100)
        assert granted(plan, "short") == (HOUR, "7d", "others are promised a start that it would delay: team/head")
        snapshot = after(snapshot, plan)
        told = [view.status.queue.estimated_start for view in snapshot.runs if view.name == "head"]
        assert told == [NOW + HOUR]
        # What is left of it is granted once nobody is delayed any more.
        rest = without(snapshot, "head")
        assert granted(passed(rest, NOW + 200), "short") == (7 * 86_400, "7d", "")

    def test_the_name_of_whom_it_would_delay_is_told_only_to_those_who_may_hear_it(self) -> None:
        head = replace(run("head", 4, at=1.0, timeLimit="1h", queue="q"), namespace="rivals")
        snapshot = world([trains("a", "n0", "n1", queue="q"), head], queues={"q": {"visibility": "OwnNamespace"}})
        snapshot = after(snapshot, passed(snapshot))
        plan = passed(ask(snapshot, "a", "7d"))
        said = f"{statuses(plan)['a'].model_dump_json()} {[each.note for each in plan.writes[0].events]}"
        assert "1 run of other namespaces" in said
        assert "rivals" not in said

    def test_nor_is_the_quota_kept_that_somebody_was_promised(self) -> None:
        queues = {"q": {"quotas": [{"gpuType": "Any", "nominalNodes": 2}]}}
        head = run("head", 2, at=1.0, queue="q", timeLimit="1h", placement={"excludeNodes": ["n0"]})
        snapshot = world([trains("a", "n0", queue="q"), head], 4, queues=queues)
        snapshot = after(snapshot, passed(snapshot))
        plan = passed(ask(snapshot, "a", "7d"))
        assert granted(plan, "a") == (HOUR, "7d", "the quota that it uses is promised to others")

    def test_nothing_grows_on_nodes_that_others_make_room_on(self) -> None:
        """They are kept from now on, and the run is gone before its limit."""
        preempts = {"default": {"preemption": {"withinQueue": "LowerPriority"}}}
        low, high = trains("low", "n0", "n1", priorityClassName="low"), run("high", 2, at=NOW, priorityClassName="high")
        snapshot = world([low, high], 2, queues=preempts, classes={"low": 1, "high": 9})
        snapshot = ask(after(snapshot, passed(snapshot)), "low", "7d")
        for _ in range(3):
            plan = passed(snapshot, NOW + 1)
            snapshot = after(snapshot, plan)
        assert in_force(snapshot, "low") == HOUR

    def test_no_more_is_granted_than_the_queue_allows_until_it_allows_more(self) -> None:
        queues = {"q": {"limits": {"maxTimeLimit": "2h"}}}
        snapshot = ask(world([trains("a", "n0", queue="q")], queues=queues), "a", "9h")
        plan = passed(snapshot)
        assert granted(plan, "a") == (2 * HOUR, "9h", "queue q allows at most 2h")
        snapshot = after(snapshot, plan)
        assert not [write for write in passed(snapshot).writes if write.name == "a"]
        longer = replace(snapshot, queues=world([], queues={"q": {"limits": {"maxTimeLimit": "4h"}}}).queues)
        assert granted(passed(longer), "a") == (4 * HOUR, "9h", "queue q allows at most 4h")
        shorter = replace(snapshot, queues=world([], queues={"q": {"limits": {"maxTimeLimit": "1h"}}}).queues)
        assert granted(passed(shorter), "a") == (2 * HOUR, "9h", "queue q allows at most 1h")

    def test_what_it_may_have_is_for_the_queue_that_gave_it_its_nodes_to_say(self) -> None:
        queues = {"mine": {"limits": {"maxTimeLimit": "2h"}}, "theirs": {}}
        given = {"resolved": ResolvedStatus(queue="mine")}
        status = {**held("n0"), **given, "last_admitted": NOW}
        view = asks(run("a", 1, status=status, timeLimit="1h", queue="theirs"), "9h")
        admission = statuses(passed(world([view], 1, queues=queues)))["a"].admission
        assert (admission.time_limit, admission.limited_by) == (7200, "queue mine allows at most 2h")

    @pytest.mark.parametrize("then", [{}, {"uid-head": 60.0}, {"uid-head": None}])
    def test_where_a_whole_look_finds_that_somebody_would_start_later_it_is_not_granted(
        self, then: dict[str, float | None]
    ) -> None:
        """Which nodes others choose may depend on whether these are free, however little they need them."""
        head = run("head", 4, at=1.0, timeLimit="1h")
        snapshot, memory = ask(world([trains("a", "n0"), head]), "a", "2h"), CycleMemory()
        cycle = CycleState(snapshot, Tunables(), NOW, memory)
        row = cycle.run_index.rows["uid-a"]
        option = Option("", 4, 0b1110, lambda _: None)

        def kept(start: float | None) -> Reservation:
            return Reservation(NOW + (start or 0.0), NOW + HOUR, option, 0b1110, known=start is not None)

        found = {uid: kept(start) for uid, start in then.items()}
        running = [RunningJob("uid-a", "default", "", 1, 1, NOW + HOUR)]
        promises = Promises(running, {"uid-head": kept(30.0)}, 0, QuotaRules.from_quotas({}), lambda _: found)
        assert not grant_limits([row], cycle, promises)
        assert row.entry.status.admission.time_limit == HOUR
        assert row.entry.status.admission.limited_by.endswith("would delay: team/head")
        assert not row.entry.events

    def test_while_others_get_nodes_it_waits_for_the_next_pass(self) -> None:
        snapshot = ask(world([trains("a", "n0"), run("new", 1)]), "a", "7d")
        plan = passed(snapshot)
        assert "a" not in statuses(plan)
        assert plan.wake_at == NOW + 1
        assert granted(passed(after(snapshot, plan), NOW + 1), "a") == (7 * 86_400, "7d", "")

    def test_what_stops_gets_no_more(self) -> None:
        stop = StopStatus(reason="TimeLimit", time=NOW, deadline=NOW + 60)
        view = trains("a", "n0")
        stops = replace(view, status=changed(view.status, stop=stop))
        assert passed(ask(world([stops]), "a", "7d")).writes == ()

    def test_a_write_whose_answer_never_came_counts_as_if_it_were_granted(self) -> None:
        head = run("head", 4, at=1.0, timeLimit="1h")
        snapshot = world([trains("a", "n0"), head], in_flight={"uid-a": frozenset()})
        assert statuses(passed(ask(snapshot, "a", "2h")))["head"].queue.estimated_start == NOW + 2 * HOUR
        assert statuses(passed(ask(snapshot, "a", None)))["head"].queue.estimated_start is None

    def test_a_limit_that_was_cut_is_not_lengthened_by_itself(self) -> None:
        view = trains("a", "n0", limit="2h", minTimeLimit="30m")
        cut = changed(view.status.admission, time_limit=1800)
        snapshot = world([replace(view, status=changed(view.status, admission=cut))])
        assert passed(snapshot).writes == ()
        assert granted(passed(ask(snapshot, "a", "1h")), "a") == (HOUR, "1h", "")


class TestShorter:
    def test_it_holds_at_once_and_others_count_on_it_once_it_is_written(self) -> None:
        head = run("head", 4, at=1.0, timeLimit="1h")
        snapshot = ask(world([trains("a", "n0", limit="4h"), head]), "a", "1h")
        assert in_force(snapshot, "a") == HOUR
        plan = passed(snapshot)
        assert granted(plan, "a") == (HOUR, "1h", "")
        assert statuses(plan)["head"].queue.estimated_start == NOW + 4 * HOUR
        later = passed(after(snapshot, plan), NOW + 60)
        assert statuses(later)["head"].queue.estimated_start == NOW + HOUR

    def test_a_first_one_is_written_by_the_pass_that_sees_it_which_decides_as_if_it_came_a_moment_later(self) -> None:
        head, short = run("head", 4, at=1.0, timeLimit="1h"), run("long", 1, at=2.0, timeLimit="9h")
        before = world([trains("a", "n0", "n1", limit=None), head, short])
        seen = ask(before, "a", "2h")
        assert in_force(seen, "a") == 2 * HOUR  # whatever others count on
        plan, without_it = passed(seen), passed(before)
        assert granted(plan, "a") == (2 * HOUR, "2h", "")
        assert [write for write in plan.writes if write.name != "a"] == list(without_it.writes)

    def test_from_then_on_a_first_one_is_what_starts_are_promised_by_and_nobody_delays_them(self) -> None:
        head = run("head", 4, at=1.0, timeLimit="1h")
        snapshot = ask(world([trains("a", "n0", "n1", limit=None), head]), "a", "2h")
        snapshot = after(snapshot, passed(snapshot))
        late = run("late", 1, at=2.0, timeLimit="9h", status={"conditions": head.status.conditions})
        snapshot = replace(snapshot, runs=(*snapshot.runs, late))
        plan = passed(snapshot, NOW + 60)
        assert statuses(plan)["head"].queue.estimated_start == NOW + 2 * HOUR
        assert not statuses(plan)["late"].assignment.nodes

    def test_a_first_one_that_is_taken_back_before_it_is_written_is_what_nobody_counted_on(self) -> None:
        head = run("head", 4, at=1.0, timeLimit="1h")
        before = world([trains("a", "n0", "n1", limit=None), head])
        plan = passed(ask(before, "a", "2h"))
        others = replace(plan, writes=tuple(write for write in plan.writes if write.name != "a"))
        snapshot = after(before, others)
        assert in_force(snapshot, "a") is None
        [told] = [view.status.queue for view in snapshot.runs if view.name == "head"]
        assert told.estimated_start is None
        assert passed(snapshot, NOW + 60).writes == ()

    def test_what_was_granted_of_a_longer_one_is_given_up(self) -> None:
        window = MaintenanceWindow("firmware", NOW + 2 * HOUR, HOUR)
        snapshot = ask(world([trains("a", "n0")]), "a", "7d")
        snapshot = ask(after(snapshot, passed(snapshot, NOW, window)), "a", "1h")
        assert in_force(snapshot, "a") == HOUR
        assert granted(passed(snapshot, NOW, window), "a") == (HOUR, "1h", "")

    def test_a_limit_that_its_queue_has_by_now_holds_for_a_run_that_was_granted_none(self) -> None:
        snapshot = world([trains("a", "n0", limit=None, queue="q")], queues={"q": {}})
        assert passed(snapshot).writes == ()
        by_now = replace(snapshot, queues=world([], queues={"q": {"limits": {"defaultTimeLimit": "2h"}}}).queues)
        assert granted(passed(by_now), "a") == (2 * HOUR, "", "")

    def test_another_default_of_its_queue_leaves_what_was_granted(self) -> None:
        queues = {"q": {"limits": {"defaultTimeLimit": "2h"}}}
        view = trains("a", "n0", limit=None, queue="q")
        known = changed(view.status.admission, time_limit=3600)
        view = replace(view, status=changed(view.status, admission=known))
        assert not [write for write in passed(world([view], queues=queues)).writes if write.name == "a"]


LIMITS: tuple[str | None, ...] = ("5m", "10m", "20m", "1h", "3h", None)
QUEUES: Mapping[str, Mapping[str, Any]] = {
    "a": {"cohort": "lab", "quotas": [{"gpuType": "Any", "nominalNodes": 3}]},
    "b": {"cohort": "lab", "quotas": [{"gpuType": "Any", "nominalNodes": 3}]},
    "default": {},
}


class Site:
    """A cluster whose runs use their time to the end of their limits, unless they end sooner."""

    def __init__(self, chance: Random) -> None:
        self.chance, self.memory, self.now = chance, CycleMemory(), NOW
        windows = [
            MaintenanceWindow(f"w{number}", NOW + chance.randrange(300, 9000, 60), 900.0, nodes=frozenset(names))
            for number in range(chance.randint(0, 2))
            for names in [chance.sample([f"n{at}" for at in range(6)], chance.randint(1, 6))]
        ]
        self.windows = tuple(windows)
        racks = [node(f"n{number}", rack=f"r{number // 2}") for number in range(6)]
        waiting = [self.fresh(at) for at in range(chance.randint(4, 10))]
        self.snapshot = world(waiting, racks, queues=QUEUES)

    def fresh(self, at: int) -> RunView:
        chance, limit = self.chance, self.chance.choice(LIMITS)
        more: dict[str, Any] = {"timeLimit": limit} if limit else {}
        if chance.random() < 0.5:
            rule = {
                "level": "rack",
                "policy": chance.choice(["Pack", "Spread"]),
                "mode": chance.choice(["Required", "Preferred"]),
            }
            more["placement"] = {"topology": [rule]}
        return run(f"r{at}", chance.choice([1, 1, 2, 3, 5]), at=NOW - 99 + at, queue=chance.choice([*QUEUES]), **more)

    def ends(self, view: RunView) -> float:
        assert view.spec is not None
        limit = limit_in_force(view.spec, view.status, self.snapshot.queues[view.spec.queue].spec.limits)
        assert view.status.last_admitted is not None
        return float("inf") if limit is None else view.status.last_admitted + limit

    def holding(self) -> list[RunView]:
        return [view for view in self.snapshot.runs if is_held(view.status.assignment)]

    def step(self, seconds: float) -> None:
        """Time goes by; whose limit is over meanwhile is gone. One pass, of whose writes some come to nothing."""
        chance, until = self.chance, self.now + seconds
        for moment in sorted({until, *(min(until, self.ends(view)) for view in self.holding())}):
            self.now = max(self.now, moment)
            gone = {view.uid for view in self.holding() if self.ends(view) <= self.now}
            self.snapshot = replace(self.snapshot, runs=tuple(r for r in self.snapshot.runs if r.uid not in gone))
            self.check_windows()
            self.decide()
            if chance.random() < 0.5:
                self.edit()

    def edit(self) -> None:
        holding = self.holding()
        if holding:
            self.snapshot = ask(self.snapshot, self.chance.choice(holding).name, self.chance.choice(LIMITS))

    def decide(self) -> None:
        tunables = Tunables(admission=AdmissionSettings(windows=self.windows))
        plan = admit(self.snapshot, tunables, self.now, self.memory)
        assert plan == admit(self.snapshot, tunables, self.now, anew(self.memory))
        taken = [write for write in plan.writes if write.nodes or self.chance.random() < 0.8]
        before = self.snapshot
        self.snapshot = after(before, replace(plan, writes=tuple(taken)))
        for write in taken:
            reasons = [each.reason for each in write.events]
            event(f"{reasons} {write.status.admission.limited_by.partition(':')[0]}")
            if "TimeLimitExtended" in reasons:
                then, now = self.promises(before, tunables), self.promises(self.snapshot, tunables)
                event(f"while {min(3, len(then))} were promised something")
                assert all(now.get(uid, float("inf")) <= start for uid, start in then.items())

    def promises(self, snapshot: ClusterSnapshot, tunables: Tunables) -> dict[str, float]:
        """The starts that a pass promises, by UID."""
        found: list[CycleResult] = []

        def watched(*args: Any, **more: Any) -> CycleResult:
            found.append(backfill(*args, **more))
            return found[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduling, "backfill", watched)
            admit(snapshot, tunables, self.now)
        return {uid: kept.start for uid, kept in found[0].reserved.items() if kept.known} if found else {}

    def check_windows(self) -> None:
        for view in self.holding():
            for window in self.windows:
                if window.nodes & set(view.status.assignment.nodes):
                    assert not window.start < self.now < window.start + window.seconds, "a window is overrun"


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_however_limits_are_changed_windows_are_kept_and_no_promised_start_is_put_off(seed: int) -> None:
    site = Site(Random(seed))
    site.decide()
    for _ in range(8):
        site.step(site.chance.choice([60.0, 300.0, 900.0, 3600.0]))
