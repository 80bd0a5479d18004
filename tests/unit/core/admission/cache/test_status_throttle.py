"""When those who wait are told what is new: the first of a queue at once, the others now and then, and no flood."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.status_throttle import (
    COUNTED,
    HEAD,
    NEAR,
    DueUpdate,
    UpdateRank,
    chosen,
    due_update,
    same_estimate,
)
from lockstep.core.admission.queueing.order import Points
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.assignment import is_held
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, run, world

SETTINGS = AdmissionSettings()
FAR = 4 * NEAR
AT_ONCE = DueUpdate(0.0, UpdateRank.AT_ONCE)
AT_THE_HEAD = DueUpdate(NOW + 10, UpdateRank.SOON)
SOON, LATER, IN_A_MINUTE = (
    DueUpdate(NOW + 60, UpdateRank.SOON),
    DueUpdate(NOW + 300, UpdateRank.LATER),
    DueUpdate(NOW + 60, UpdateRank.LATER),
)
TOLD = QueueStatus(
    position=FAR, reason="Priority", message="behind others", updated=NOW, priority=5, factors={"age": 5}
)
WAITS = PendingReason("Priority", "behind others")


def due(
    told: QueueStatus, reason: PendingReason = WAITS, position: int | None = None, points: int = 5
) -> DueUpdate | None:
    view = run("a")
    entry = Entry(view, changed(view.status, queue=told))
    entry.position = told.position if position is None else position
    entry.points = Points(0, points, 0, 0, 0)
    return due_update(entry, reason, (), SETTINGS)


def test_what_kueue_says_next_is_told_within_seconds() -> None:
    before = changed(TOLD, reason="WaitingForKueue", message="its Workload is being made")
    assert due(before, PendingReason(WaitReason.WAITING_FOR_KUEUE, "WaitingForQuota: 16 more needed")) == DueUpdate(
        NOW + 2, UpdateRank.SOON
    )
    assert due(before, PendingReason(WaitReason.WAITING_FOR_KUEUE, before.message)) is None


@pytest.mark.parametrize(
    ("before", "position", "word"),
    [
        (1, 1, None),
        (3, 2, AT_THE_HEAD),
        (HEAD + 1, HEAD, AT_THE_HEAD),
        (HEAD + 2, HEAD + 1, SOON),
        (NEAR, NEAR - 1, SOON),
        (NEAR + 1, NEAR, SOON),
        (NEAR + 2, NEAR + 1, None),
        (FAR, FAR - FAR // 10, None),
        (FAR, FAR - FAR // 10 - 1, LATER),
        (FAR, FAR + FAR // 10 + 1, LATER),
        (FAR, NEAR, SOON),
        (NEAR, FAR, SOON),
    ],
)
def test_a_position_is_news_near_the_head_and_further_back_once_it_is_quite_another(
    before: int, position: int, word: DueUpdate | None
) -> None:
    assert due(changed(TOLD, position=before), position=position) == word


@pytest.mark.parametrize(
    ("position", "reason", "word"),
    [
        (FAR, PendingReason("QueueHeld", "its stopPolicy is Hold"), AT_ONCE),
        (FAR, PendingReason("DeadlineUnreachable", "no start"), AT_ONCE),
        (FAR, PendingReason("Resources", "needs 4 nodes"), IN_A_MINUTE),
        (NEAR, PendingReason("Resources", "needs 4 nodes"), AT_ONCE),
        (FAR, PendingReason("Priority", "behind team/b"), LATER),
        (NEAR, PendingReason("Priority", "behind team/b"), SOON),
        (FAR, PendingReason("Priority", "behind others", start=NOW + 600), IN_A_MINUTE),
        (NEAR, PendingReason("Priority", "behind others", start=NOW + 600), AT_ONCE),
        (FAR, WAITS, None),
    ],
)
def test_a_reason_that_is_not_only_about_whose_turn_it_is_is_told_at_once(
    position: int, reason: PendingReason, word: DueUpdate | None
) -> None:
    assert due(changed(TOLD, position=position), reason) == word


def test_who_has_heard_nothing_yet_is_told_at_once_wherever_it_stands() -> None:
    assert due(QueueStatus(), position=FAR) == AT_ONCE


def test_points_alone_are_told_after_a_quarter_of_an_hour_and_the_earlier_of_two_words_counts() -> None:
    assert due(TOLD, points=500) == DueUpdate(NOW + 900, UpdateRank.LATER)
    assert due(TOLD, position=1, points=500) == AT_THE_HEAD
    far_off = changed(TOLD, position=1, estimated_start=NOW + 10**6)
    moved = PendingReason("Priority", "behind others", start=NOW + 10**6 + 3600.0)
    assert due(far_off, moved) == DueUpdate(NOW + 10**6 - 36_000, UpdateRank.SOON)
    assert due(far_off, moved, points=500) == DueUpdate(NOW + 900, UpdateRank.LATER)


WORDS = st.lists(
    st.tuples(st.floats(0, 900), st.sampled_from(list(UpdateRank))).map(lambda pair: DueUpdate(*pair)), max_size=60
)


@given(WORDS, st.integers(0, 150), st.integers(1, 40))
def test_those_further_back_never_starve_and_no_more_is_said_than_may_be(
    words: Sequence[DueUpdate], told: int, per_pass: int
) -> None:
    settings = AdmissionSettings(told_per_pass=per_pass)
    waiting = sorted(words)
    said = chosen([(word, word) for word in waiting], told, settings)
    assert len(said) <= per_pass
    by_rank = {rank: [word for word in waiting if word.rank is rank] for rank in UpdateRank}
    for rank, of_rank in by_rank.items():
        mine = [word for word in said if word.rank is rank]
        assert mine == of_rank[: len(mine)], "who has waited for longest comes first"
    at_once = sum(word.rank is UpdateRank.AT_ONCE for word in said)
    assert at_once == min(per_pass, len(by_rank[UpdateRank.AT_ONCE]))
    room = max(0, min(int(settings.told_per_second * COUNTED) - told - at_once, per_pass - at_once))
    assert len(said) - at_once == min(room, len(by_rank[UpdateRank.SOON]) + len(by_rank[UpdateRank.LATER]))
    assert sum(word.rank is UpdateRank.LATER for word in said) >= min(len(by_rank[UpdateRank.LATER]), room // 4)


def test_in_an_overload_new_words_come_first_and_of_the_others_a_quarter() -> None:
    settings = AdmissionSettings(told_per_pass=100)
    at_once, soon = [DueUpdate(0.0, UpdateRank.AT_ONCE)] * 5, [DueUpdate(1.0, UpdateRank.SOON)] * 100
    due = [(word, word) for word in (*soon, *at_once)]
    assert len(chosen(due, 0, settings)) == 100
    told = chosen(due, 0, settings, overloaded=True)
    assert (len(told), told[:5]) == (25, at_once)
    assert chosen(due, 25, settings, overloaded=True) == at_once


class Turnover:
    """So many that wait for ten nodes in one queue, one of which comes free every two seconds, for somebody else."""

    def __init__(self, waiting: int, settings: AdmissionSettings) -> None:
        begun = {"last_admitted": NOW - 9}
        holders = [run(f"h{n}", 1, at=n - 99, status={**held(f"n{n}"), **begun}, timeLimit="9h") for n in range(10)]
        line = [run(f"w{n:04}", 1, at=n / 100, timeLimit="9h") for n in range(waiting)]
        self.snapshot = world([*holders, *line], 10)
        self.tunables, self.memory, self.now, self.words = Tunables(admission=settings), CycleMemory(), NOW, 0

    def second(self, *, ends: bool) -> ClusterPlan:
        self.now += 1
        if ends:
            gone = next(view for view in self.snapshot.runs if is_held(view.status.assignment))
            self.snapshot = replace(self.snapshot, runs=tuple(v for v in self.snapshot.runs if v is not gone))
        plan = admit(self.snapshot, self.tunables, self.now, self.memory)
        written = {write.uid: write.status for write in plan.writes}
        runs = (replace(v, status=written[v.uid]) if v.uid in written else v for v in self.snapshot.runs)
        self.snapshot = replace(self.snapshot, runs=tuple(runs))
        self.words += sum(1 for write in plan.writes if not write.nodes)
        return plan

    @property
    def line(self) -> Sequence[RunView]:
        return [view for view in self.snapshot.runs if not is_held(view.status.assignment)]


@pytest.mark.slow
def test_a_steady_turnover_makes_no_flood_of_words_and_the_first_know_where_they_stand() -> None:
    settings = AdmissionSettings(told_per_second=4.0, told_every=20.0, told_far_every=60.0)
    site = Turnover(400, settings)
    for _ in range(30):
        site.second(ends=False)
    site.words = 0
    starts = 120
    for second in range(2 * starts):
        plan = site.second(ends=second % 2 == 0)
        assert sum(1 for write in plan.writes if write.nodes) == (1 if second % 2 == 0 else 0)
    # And at once, whoever is the first now and whose start can be told since.
    assert site.words <= settings.told_per_second * (2 * starts + COUNTED) + 2 * starts
    line = site.line
    assert len(line) == 280
    for position, view in enumerate(line, 1):
        told = view.status.queue
        assert told.updated is not None
        if position <= NEAR:  # at most one in two seconds started since it heard of its own
            assert abs(told.position - position) <= 1 + settings.told_every / 2 + 1, view.name
        elif abs(told.position - position) > told.position / 10 + settings.told_far_every / 2:
            assert site.now - told.updated <= settings.told_far_every + len(line), view.name


def test_a_run_that_is_to_start_waits_for_no_words_and_all_who_are_new_are_told_why_they_wait() -> None:
    site = Turnover(500, AdmissionSettings(told_per_second=1.0))
    for _ in range(4):
        site.second(ends=True)
    assert all(view.status.queue.reason for view in site.line)
    assert len(site.line) == 496


@pytest.mark.parametrize(
    ("told", "now", "same"),
    [(NOW, NOW + 60, True), (NOW, NOW - 60, True), (NOW, NOW + 61, False), (None, NOW, False), (NOW, None, False)],
)
def test_an_estimate_that_has_hardly_moved_is_the_one_that_was_told(
    told: float | None, now: float | None, same: bool
) -> None:
    assert same_estimate(told, now) is same
