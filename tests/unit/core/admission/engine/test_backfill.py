"""Backfill, case by case."""

import pytest

from lockstep.core.admission.engine.backfill import BackfillPolicy, backfill, estimate_starts
from lockstep.core.admission.engine.cycle_result import CycleResult
from lockstep.core.admission.engine.jobs import NO_LIMIT, Choose, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.quota import QueueQuota, QuotaRules, TypeQuota
from support.small_queues import CHOICES, EVERY

FREE = QuotaRules.from_quotas({})
EASY = BackfillPolicy()
HOUR = 3600.0


def job(uid: str, count: int, hours: float | None, queue: str = "a", **fields: object) -> Job:
    duration = NO_LIMIT if hours is None else hours * HOUR
    return Job(uid, queue, (option(count),), duration, **fields)  # type: ignore[arg-type]


def option(count: int, choose: Choose | None = None, *, fallback: bool = False) -> Option:
    return Option("A", count, EVERY, choose or CHOICES["anywhere", count], fallback)


def running(uid: str, nodes: int, hours: float, *, limited: bool = True) -> RunningJob:
    return RunningJob(uid, "a", "A", nodes, nodes.bit_count(), hours * HOUR, limited)


def look(
    jobs: list[Job],
    runs: list[RunningJob] | None = None,
    claims: list[NodeClaim] | None = None,
    policy: BackfillPolicy = EASY,
    quota: QuotaRules = FREE,
) -> CycleResult:
    free = EVERY
    for run in runs or []:
        free &= ~run.nodes
    return backfill(0.0, jobs, runs or [], free, claims or [], quota, policy)


def started(result: CycleResult) -> list[str]:
    return [start.uid for start in result.starts]


def test_who_ends_before_the_promise_overtakes_and_who_does_not_waits() -> None:
    """Four of six nodes are taken for two hours, and the first wants all six."""
    result = look(
        [job("all", 6, 1), job("long", 1, 3), job("short", 2, 2), job("late", 1, 1)], [running("r", 0b001111, 2)]
    )
    assert started(result) == ["short"]
    assert result.starts[0].backfilled
    head = result.waits["all"]
    assert (head.kind, head.start, head.nodes, head.blockers) == ("Resources", 2 * HOUR, EVERY, ("r", "short")[:1])
    assert (result.waits["long"].kind, result.waits["long"].blockers) == ("Priority", ("all",))


def test_who_runs_on_after_the_promise_overtakes_on_nodes_that_were_not_promised() -> None:
    result = look([job("five", 5, 1), job("long", 1, 9)], [running("r", 0b000111, 2)])
    assert result.waits["five"].nodes.bit_count() == 5
    assert started(result) == ["long"]
    assert not result.starts[0].nodes & result.waits["five"].nodes


def test_without_overtaking_the_queue_waits_and_other_queues_do_not() -> None:
    jobs = [job("all", 6, 1), job("short", 1, 1), job("elsewhere", 1, 1, queue="b")]
    result = look(jobs, [running("r", 0b001111, 2)], policy=BackfillPolicy(overtaking=False))
    assert started(result) == ["elsewhere"]
    assert result.waits["short"].blockers == ("all",)


def test_a_run_without_nodes_or_quota_ever_holds_up_nobody() -> None:
    jobs = [
        Job("no such nodes", "a", (Option("A", 1, 1 << 40, CHOICES["anywhere", 1]),), HOUR),
        job("too large", 6, 1, queue="b"),
        job("small", 6, 1),
    ]
    quota = QuotaRules.from_quotas({"b": QueueQuota("", {"A": TypeQuota(5)})})
    result = look(jobs, quota=quota)
    assert started(result) == ["small"]
    assert not result.starts[0].backfilled
    assert (result.waits["no such nodes"].kind, result.waits["no such nodes"].start) == ("Resources", None)
    assert (result.waits["too large"].kind, result.waits["too large"].start) == ("Quota", None)


def test_a_promise_that_rests_on_a_run_without_a_limit_names_no_time_and_holds_all_the_same() -> None:
    runs = [running("endless", 0b001111, NO_LIMIT / HOUR - 5, limited=False)]
    result = look([job("all", 6, 1), job("endless too", 1, None), job("a day", 1, 24)], runs)
    assert result.waits["all"].start is None
    assert result.waits["all"].nodes == EVERY
    assert started(result) == ["a day"]
    estimates = dict(estimate_starts(0.0, [job("all", 6, 1), job("next", 6, 1)], runs, 0b110000, [], FREE, 2))
    assert [estimate.start for estimate in estimates.values()] == [None, None]


def test_a_window_stops_nobody_and_is_not_overrun() -> None:
    window = NodeClaim(4 * HOUR, 6 * HOUR, EVERY, "window:firmware")
    result = look([job("long", 1, 5), job("endless", 1, None), job("short", 2, 4)], [running("r", 1, 9)], [window])
    assert started(result) == ["short"]
    long = result.waits["long"]
    assert (long.kind, long.window, long.start) == ("Window", "window:firmware", 6 * HOUR)
    assert result.waits["endless"].kind == "Window"


def test_a_run_that_may_be_cut_starts_before_a_window_with_all_the_time_there_is() -> None:
    window = NodeClaim(4 * HOUR, 6 * HOUR, EVERY, "window:firmware")
    result = look([job("long", 6, 9, min_duration=3 * HOUR)], claims=[window])
    assert [(start.uid, start.until) for start in result.starts] == [("long", 4 * HOUR)]
    assert not look([job("long", 6, 9, min_duration=5 * HOUR)], claims=[window]).starts


def test_of_all_times_that_it_may_be_cut_to_it_gets_the_longest() -> None:
    windows = [NodeClaim((node + 1) * HOUR, 20 * HOUR, 1 << node, "window:rolling") for node in range(6)]
    result = look([job("long", 1, 9, min_duration=0.5 * HOUR)], claims=windows)
    assert [(start.until, start.nodes) for start in result.starts] == [(6 * HOUR, 0b100000)]


def test_a_smaller_size_is_taken_only_to_start_now() -> None:
    elastic = Job("elastic", "a", (option(6), option(2, fallback=True)), HOUR)
    assert look([elastic], [running("r", 0b1111, 2)]).starts[0].option.count == 2
    assert look([elastic], [running("r", 0b11111, 2)]).waits["elastic"].nodes == EVERY


def test_a_deadline_that_cannot_be_met_is_said_and_holds_up_nobody() -> None:
    runs = [running("r", 0b001111, 2)]
    result = look([job("late", 6, 1, latest_end=2.5 * HOUR), job("long", 2, 9)], runs)
    assert result.waits["late"].kind == "DeadlineUnreachable"
    assert started(result) == ["long"]
    assert look([job("in time", 6, 1, latest_end=3 * HOUR)], runs).waits["in time"].start == 2 * HOUR


def test_who_may_not_begin_yet_holds_up_nobody() -> None:
    result = look([job("tomorrow", 6, 1, not_before=24 * HOUR), job("now", 6, 99)])
    assert (started(result), result.waits["tomorrow"].kind) == (["now"], "BeginTime")


def test_a_queue_at_its_number_of_runs_says_so() -> None:
    quota = QuotaRules.from_quotas({"a": QueueQuota(max_running_runs=1)})
    wait = look([job("next", 1, 1)], [running("r", 1, 2)], quota=quota).waits["next"]
    assert (wait.kind, wait.start, wait.blockers) == ("RunningRunsLimit", 2 * HOUR, ("r",))


def test_quota_that_was_promised_is_not_lent_to_somebody_else() -> None:
    quota = QuotaRules.from_quotas({queue: QueueQuota("lab", {"A": TypeQuota(2)}) for queue in "ab"})
    jobs = [job("four", 4, 1), job("borrows", 2, 3, queue="b"), job("returns", 2, 1, queue="b")]
    result = look(jobs, [running("r", 0b11, 2)], quota=quota)
    assert (result.waits["four"].kind, result.waits["four"].start) == ("Quota", 2 * HOUR)
    assert started(result) == ["returns"]


def test_quota_is_free_when_the_nodes_are_not_only_before() -> None:
    quota = QuotaRules.from_quotas({"b": QueueQuota("", {"A": TypeQuota(2)})})
    jobs = [job("one", 2, 1, queue="b"), job("two", 2, 1, queue="b")]
    result = look(jobs, [running("r", 0b011111, 1)], quota=quota, policy=BackfillPolicy(None))
    assert [result.waits[uid].start for uid in ("one", "two")] == [HOUR, 2 * HOUR]


def test_a_run_that_is_past_its_end_still_holds_its_nodes() -> None:
    result = look([job("next", 1, 1)], [running("late", EVERY, -1)])
    assert result.waits["next"].start == 1.0
    assert result.waits["next"].blockers == ("late",)


def test_what_is_held_for_a_job_it_gets_and_until_then_nobody() -> None:
    held = NodeClaim(0.0, 99 * HOUR, 0b000011, "owner")
    owner = Job("owner", "a", (option(2, CHOICES["one rack", 2]),), 3 * HOUR)
    jobs = [job("small", 1, 1), job("smaller", 1, 0.05), owner]
    runs = [running("leaves", 0b000001, 0.1), running("stays", 0b111000, 2)]
    result = look(jobs, runs, [held])
    assert [(start.uid, start.nodes) for start in result.starts] == [("small", 0b000100)]
    assert (result.waits["owner"].start, result.waits["owner"].nodes) == (0.1 * HOUR, 0b000011)
    assert result.waits["owner"].blockers == ("leaves",)
    assert [(start.uid, start.nodes) for start in look(jobs[1:], runs[1:], [held]).starts] == [
        ("smaller", 0b000100),
        ("owner", 0b000011),
    ]


@pytest.mark.parametrize(("wrong", "what"), [(0b111, "too many"), (0b1000000, "others")])
def test_a_choice_that_would_book_a_node_twice_is_an_error(wrong: int, what: str) -> None:
    bad = Job("bad", "a", (option(2, lambda usable: wrong),), HOUR)
    with pytest.raises(ValueError, match="were chosen"):
        look([bad])


def test_what_a_job_could_have_is_kept_for_it_while_it_may_not_start() -> None:
    """And it costs its queue no promise: the next one that waits has that."""
    result = look([job("head", 2, 1, may_start=False), job("next", 5, 1), job("last", 4, 2)])
    assert started(result) == []
    assert (result.waits["head"].start, result.waits["head"].nodes.bit_count()) == (0.0, 2)
    assert set(result.reserved) == {"head", "next"}
    assert result.waits["last"].kind == "Priority"


def test_nodes_are_kept_for_no_more_jobs_than_a_start_is_sought_for_and_for_the_next_as_its_promise() -> None:
    edited = [job(f"edited {at}", 1, 1, may_start=False) for at in range(5)]
    result = look([*edited, job("other", 2, 1, queue="b")], policy=BackfillPolicy(depth=3))
    assert set(result.reserved) == {"edited 0", "edited 1", "edited 2", "edited 3"}
    assert started(result) == ["other"]


def test_a_job_that_may_not_start_waits_for_the_nodes_that_are_held_for_it_though_others_are_free() -> None:
    held = NodeClaim(0.0, 9 * HOUR, 0b000011, "head")
    runs = [running("r", 0b000011, 1)]
    assert started(look([job("head", 2, 1)], runs, [held])) == ["head"]
    result = look([job("head", 2, 1, may_start=False)], runs, [held])
    assert (started(result), result.waits["head"].nodes) == ([], 0b000011)
