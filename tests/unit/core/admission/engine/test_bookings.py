"""Nodes and quota while a cycle gives them away: what a job gets now, when it gets more, and who is in its way."""

import pytest

from lockstep.core.admission.engine.bookings import Bookings
from lockstep.core.admission.engine.cycle_result import Foreseen
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.quota import QueueQuota, QuotaRules, TypeQuota
from lockstep.core.model.node_set import EMPTY, NodeSet
from support.small_queues import CHOICES, EVERY, OLD, any_nodes
from support.values import not_none

UNLIMITED = QuotaRules.from_quotas({})
TWO_OF_A = QuotaRules.from_quotas({"q": QueueQuota("", {"A": TypeQuota(2)})})


def option(count: int, gpu_type: str = "A", eligible: NodeSet = EVERY, *, fallback: bool = False) -> Option:
    return Option(gpu_type, count, eligible, CHOICES["anywhere", count], fallback)


def job(uid: str, *options: Option, seconds: float = 10.0, least: float | None = None, by: float | None = None) -> Job:
    return Job(uid, "q", options, seconds, min_duration=least, latest_end=by)


def running(uid: str, nodes: int, ends: float, queue: str = "q", *, limited: bool = True) -> RunningJob:
    return RunningJob(uid, queue, "A", NodeSet(nodes), nodes.bit_count(), ends, limited)


def bookings(
    *runs: RunningJob, claims: tuple[NodeClaim, ...] = (), jobs: tuple[Job, ...] = (), quota: QuotaRules = UNLIMITED
) -> Bookings:
    """At time 0 in a cluster of six nodes."""
    free = EVERY
    for run in runs:
        free &= ~run.nodes
    return Bookings(0.0, jobs, runs, free, claims, quota)


WHOLE, SMALLER = option(6), option(4, fallback=True)


@pytest.mark.parametrize(
    ("claim", "least", "started"),
    [
        (None, None, (6, 10.0)),
        (NodeClaim(10.0, 99.0, NodeSet(0b1), "window:w"), None, (6, 10.0)),
        (NodeClaim(8.0, 99.0, NodeSet(0b1), "window:w"), 5.0, (6, 8.0)),
        (NodeClaim(5.0, 99.0, NodeSet(0b1), "window:w"), 5.0, (6, 5.0)),
        (NodeClaim(4.0, 99.0, NodeSet(0b1), "window:w"), 5.0, (4, 10.0)),
        (NodeClaim(8.0, 99.0, NodeSet(0b1), "window:w"), None, (4, 10.0)),
        (NodeClaim(4.0, 99.0, NodeSet(0b111), "window:w"), 5.0, None),
    ],
)
def test_a_job_starts_whole_rather_than_cut_short_and_cut_short_rather_than_smaller(
    claim: NodeClaim | None, least: float | None, started: tuple[int, float] | None
) -> None:
    wanted = job("a", WHOLE, SMALLER, least=least)
    start = bookings(claims=(claim,) if claim else ()).start(wanted, wanted.options)
    assert (None if start is None else (start.option.count, start.until)) == started


def test_what_one_job_was_given_the_next_does_not_get() -> None:
    first, second, third = (job(uid, option(3)) for uid in "abc")
    book = bookings()
    given = [book.start(each, each.options) for each in (first, second, third)]
    assert given[2] is None
    assert [start.nodes for start in given if start] == [0b000111, 0b111000]


def test_a_job_starts_with_no_option_but_those_that_the_quotas_allow() -> None:
    wanted = job("a", WHOLE, option(2))
    start = not_none(bookings().start(wanted, wanted.options[1:]))
    assert start.option.count == 2
    assert bookings().start(wanted, ()) is None


@pytest.mark.parametrize(
    ("runs", "wanted", "reserved"),
    [
        ([], job("a", WHOLE), (0.0, 10.0, True)),
        ([running("r", 0b1, 30.0)], job("a", WHOLE), (30.0, 40.0, True)),
        ([running("r", 0b1, 30.0, limited=False)], job("a", WHOLE), (30.0, 40.0, False)),
        ([running("r", 0b1, 30.0)], job("a", SMALLER), None),
        ([running("r", 0b1, 30.0)], job("a", WHOLE, option(5)), (0.0, 10.0, True)),
        ([running("r", 0b1, 30.0)], job("a", WHOLE, by=40.0), (30.0, 40.0, True)),
        ([running("r", 0b1, 30.0)], job("a", WHOLE, by=39.0), None),
        ([running("r", 0b1, 30.0)], job("a", WHOLE, least=5.0, by=39.0), (30.0, 39.0, True)),
        ([], job("a", Option("A", 7, EVERY, any_nodes(7))), None),
    ],
)
def test_a_reservation_is_the_earliest_start_of_a_full_size_for_the_longest_time_there(
    runs: list[RunningJob], wanted: Job, reserved: tuple[float, float, bool] | None
) -> None:
    found = bookings(*runs).reserve(wanted, 0.0)
    assert (None if found is None else (found.start, found.until, found.known)) == reserved


def test_a_reservation_waits_for_the_quota_as_well_as_for_nodes() -> None:
    book = bookings(running("r", 0b1, 30.0), quota=TWO_OF_A)
    found = not_none(book.reserve(job("a", option(2)), 0.0))
    assert found.start == 30.0
    assert book.reserve(job("b", option(3)), 0.0) is None


def test_a_start_that_rests_on_a_job_without_a_limit_is_not_known() -> None:
    book = bookings()
    assert book.reserve(job("a", WHOLE, seconds=NO_LIMIT), 0.0) is not None
    found = not_none(book.reserve(job("b", WHOLE), 0.0))
    assert (found.start, found.known) == (NO_LIMIT, False)


HELD = NodeClaim(0.0, 1e9, NodeSet(0b000011), "a")


@pytest.mark.parametrize(
    ("runs", "size", "kept"),
    [
        ([], 2, 0.0),
        ([running("r", 0b000001, 30.0)], 2, 30.0),
        ([running("r", 0b000100, 30.0)], 2, 0.0),
        ([], 3, None),
        ([], 1, None),
    ],
)
def test_what_is_held_for_a_job_is_kept_until_it_is_free_if_it_is_as_many_as_the_job_wants(
    runs: list[RunningJob], size: int, kept: float | None
) -> None:
    wanted = job("a", option(size))
    book = bookings(*runs, claims=(HELD,), jobs=(wanted,))
    assert book.is_held(wanted)
    assert book.start(job("other", WHOLE), (WHOLE,)) is None
    book.release_held(wanted)
    found = book.keep(wanted)
    assert (None if found is None else (found.start, found.nodes)) == (None if kept is None else (kept, 0b000011))


def test_nodes_claimed_for_nobody_who_waits_are_held_for_nobody() -> None:
    wanted = job("b", option(2))
    book = bookings(claims=(HELD,), jobs=(wanted,))
    assert not book.is_held(wanted)
    assert not book.holds_for("a")


def test_what_is_foreseen_for_a_job_nobody_else_has_from_when_it_may_preempt() -> None:
    foreseen = Foreseen(20.0, 25.0, option(6), EVERY, ("r",))
    book = bookings(running("r", 0b1, 99.0))
    kept = book.foresee(job("a", option(6)), foreseen)
    assert (kept.start, kept.until) == (25.0, 35.0)
    short, long = job("b", option(5), seconds=20.0), job("c", option(5), seconds=21.0)
    assert book.start(long, long.options) is None
    assert book.start(short, short.options) is not None


@pytest.mark.parametrize(
    ("wanted", "quota", "could"),
    [
        (job("a", WHOLE), UNLIMITED, True),
        (job("a", SMALLER), UNLIMITED, False),
        (job("a", Option("A", 7, EVERY, any_nodes(7))), UNLIMITED, False),
        (job("a", option(5, eligible=OLD)), UNLIMITED, False),
        (job("a", option(2)), TWO_OF_A, True),
        (job("a", option(3)), TWO_OF_A, False),
        (job("a", option(3), option(2)), TWO_OF_A, True),
        (job("a", option(1, "B")), TWO_OF_A, False),
    ],
)
def test_a_job_could_start_some_day_if_nodes_and_quota_are_ever_enough(
    wanted: Job, quota: QuotaRules, could: bool
) -> None:
    assert bookings(running("r", 0b111111, 30.0, queue=""), quota=quota).could_ever_start(wanted) is could


@pytest.mark.parametrize(
    ("options", "allowed", "bound"),
    [
        ([option(1)], [0], None),
        ([option(2)], [], "Queue"),
        ([option(2), option(1)], [1], None),
        ([option(2), option(1, fallback=True)], [1], "Queue"),
        ([option(1, "B"), option(2)], [], "Queue"),  # of those that it would ever let start
        ([option(1, "B"), option(3)], [], "NoQuota"),
    ],
)
def test_the_quotas_allow_what_fits_now_and_say_why_no_full_size_does(
    options: list[Option], allowed: list[int], bound: str | None
) -> None:
    """One node of two is used."""
    book = bookings(running("r", 0b1, 30.0), quota=TWO_OF_A)
    found, refusal = book.allowed("q", options)
    assert list(found) == [options[at] for at in allowed]
    assert (refusal.bound if refusal else None) == bound


@pytest.mark.parametrize(
    ("by", "size", "misses"), [(None, 6, False), (9.0, 6, True), (39.0, 6, True), (40.0, 6, False), (39.0, 5, False)]
)
def test_a_deadline_is_missed_by_a_job_that_could_start_were_it_not_for_it(
    by: float | None, size: int, misses: bool
) -> None:
    book, wanted = bookings(running("r", 0b1, 30.0)), job("a", option(size), by=by)
    assert (book.reserve(wanted, 0.0) is None and book.misses_deadline(wanted)) is misses


@pytest.mark.parametrize(
    ("runs", "begins", "size", "owner"),
    [
        ([], 10.0, 6, ""),
        ([], 9.0, 6, "window:w"),
        ([], -5.0, 6, ""),
        ([], 9.0, 4, ""),
        ([running("r", 0b1, 30.0)], 9.0, 6, ""),
    ],
)
def test_a_window_is_to_blame_if_nodes_are_free_at_this_moment_and_only_it_forbids_to_start(
    runs: list[RunningJob], begins: float, size: int, owner: str
) -> None:
    """Two nodes are to be maintained."""
    wanted = job("a", option(size))
    book = bookings(*runs, claims=(NodeClaim(begins, 50.0, NodeSet(0b110000), "window:w"),))
    has_nodes = book.has_nodes_now(wanted.options)
    assert (book.window(wanted, wanted.options) if has_nodes else "") == owner


@pytest.mark.parametrize(
    ("size", "most", "names"), [(2, 8, ()), (4, 8, ("early",)), (6, 8, ("late", "early")), (6, 1, ("late",))]
)
def test_in_the_way_are_the_last_holders_of_the_reserved_nodes_the_latest_first(
    size: int, most: int, names: tuple[str, ...]
) -> None:
    wanted = job("a", option(size))
    book = bookings(running("early", 0b001100, 20.0), running("late", 0b110000, 30.0))
    reservation = not_none(book.reserve(wanted, 0.0))
    assert book.blockers(wanted, reservation, most) == names


@pytest.mark.parametrize(("seconds", "names"), [(30.0, ()), (31.0, ("first",))])
def test_free_nodes_are_promised_to_those_who_start_before_the_job_would_end(
    seconds: float, names: tuple[str, ...]
) -> None:
    book, wanted = bookings(running("r", 0b1, 30.0)), job("a", option(5), seconds=seconds)
    assert book.reserve(job("first", WHOLE), 0.0) is not None
    assert book.promised(wanted, wanted.options, 8) == names
    assert (book.start(wanted, wanted.options) is None) is bool(names)


@pytest.mark.parametrize(
    ("claims", "size", "now", "shut_out"),
    [
        ((), 5, True, False),
        ((), 6, False, True),
        ((NodeClaim(5.0, 9.0, EVERY, "window:w"),), 5, True, False),
        ((NodeClaim(5.0, 9.0, EVERY, "window:w"),), 6, False, True),
    ],
)
def test_a_job_is_shut_out_by_a_lack_of_free_nodes_and_not_by_a_window(
    claims: tuple[NodeClaim, ...], size: int, now: bool, shut_out: bool
) -> None:
    book, options = bookings(running("r", 0b1, 30.0), claims=claims), (option(size),)
    assert book.has_nodes_now(options) is now
    assert book.are_shut_out(options, 10.0) is shut_out


def test_nothing_is_free_where_nothing_is() -> None:
    book = Bookings(0.0, (), (), EMPTY, (), UNLIMITED)
    wanted = job("a", option(1))
    assert not book.has_nodes_now(wanted.options)
    assert book.start(wanted, wanted.options) is None
    assert book.reserve(wanted, 0.0) is None
