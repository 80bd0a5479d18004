"""Backfill on small clusters, against what is true at each instant."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep.core.admission.engine.backfill import BackfillPolicy, backfill, estimate_starts
from lockstep.core.admission.engine.cycle_result import CycleResult, JobStart, Reservation
from lockstep.core.admission.engine.jobs import Job, NodeClaim, Option, RunningJob
from support.examples import examples
from support.small_queues import (
    HORIZON,
    Booked,
    Site,
    begun,
    can_run,
    clusters,
    free_throughout,
    is_within_quota,
    job_lists,
    quota_rules,
    sites,
)

EASY = BackfillPolicy()
CONSERVATIVE = BackfillPolicy(None)
policies = st.sampled_from([EASY, CONSERVATIVE, BackfillPolicy(2), BackfillPolicy(1, overtaking=False)])


def booked_by(job: Job, given_to: JobStart | Reservation, start: float) -> Booked:
    return Booked(job.uid, given_to.nodes, start, given_to.until, job.queue, given_to.option.gpu_type)


def in_order(site: Site, result: CycleResult) -> list[tuple[Job, JobStart | Reservation | None, float]]:
    """(job, what it got, from when) as the pass looked at them."""
    starts = {start.uid: start for start in result.starts}
    found: list[tuple[Job, JobStart | Reservation | None, float]] = []
    for job in site.jobs:
        if job.uid in starts:
            found.append((job, starts[job.uid], site.now))
        elif job.uid in result.waits:
            reservation = result.waits[job.uid].reservation
            found.append((job, reservation, reservation.start if reservation is not None else site.now))
    return found


def full_sizes(job: Job) -> list[Option]:
    return [option for option in job.options if not option.fallback]


def earliest(site: Site, booked: Sequence[Booked], job: Job, after: int) -> tuple[int, Option] | None:
    """By looking at every second."""
    for start in range(after, HORIZON):
        shortest, longest = job.lengths(start)
        for option in full_sizes(job):
            if shortest <= longest and can_run(site, booked, job, option, start, start + shortest):
                return start, option
    return None


@given(sites(), policies)
@settings(max_examples=examples(150))
def test_no_node_is_booked_twice_and_no_quota_exceeded_at_any_instant(site: Site, policy: BackfillPolicy) -> None:
    booked = begun(site)
    for job, got, start in in_order(site, backfill(*site.arguments, policy)):
        if got is None:
            continue
        assert start < got.until
        assert got.nodes & free_throughout(site, booked, start, got.until) == got.nodes
        assert is_within_quota(site, booked, job, got.option, start, got.until)
        assert got.option.choose(got.nodes) == got.nodes
        assert got.nodes & got.option.eligible == got.nodes
        assert job.not_before <= start
        assert job.latest_end is None or got.until <= job.latest_end
        assert got.until - start <= job.duration
        assert got.until - start == job.duration or job.min_duration is not None
        assert job.min_duration is None or got.until - start >= job.min_duration
        booked.append(booked_by(job, got, start))


@given(sites(), policies)
@settings(max_examples=examples(150))
def test_each_starts_as_early_as_those_before_it_allow_and_for_as_long(site: Site, policy: BackfillPolicy) -> None:
    booked = begun(site)
    result = backfill(*site.arguments, policy)
    promised: dict[str, int] = {}
    for job, got, start in in_order(site, result):
        if job.not_before > site.now:
            assert got is None
            continue
        if not policy.overtaking and promised.get(job.queue):
            assert got is None
            continue
        first = earliest(site, booked, job, 0)
        if isinstance(got, JobStart):
            event("starts")
            if not got.option.fallback:
                assert first is not None
                assert first[0] == 0
            else:
                assert first is None or first[0] > 0
        else:
            shortest, longest = job.lengths(0.0)
            assert first is None or first[0] > 0
            assert shortest > longest or not any(
                can_run(site, booked, job, option, 0, shortest) for option in job.options
            )
            may = policy.reservations_per_queue is None or promised.get(job.queue, 0) < policy.reservations_per_queue
            assert (got is not None) == (may and first is not None)
        if got is None:
            continue
        if isinstance(got, Reservation):
            event("is promised a time")
            assert first is not None
            assert start == first[0]
            promised[job.queue] = promised.get(job.queue, 0) + 1
        ends = range(int(got.until) + 1, int(start + job.lengths(start)[1]) + 1)
        assert not any(can_run(site, booked, job, got.option, start, end) for end in ends)
        booked.append(booked_by(job, got, start))


@given(sites(), policies)
def test_full_length_comes_before_being_cut_and_that_before_a_smaller_size(site: Site, policy: BackfillPolicy) -> None:
    booked = begun(site)
    for job, got, start in in_order(site, backfill(*site.arguments, policy)):
        if isinstance(got, JobStart):
            shortest, longest = job.lengths(0.0)
            better = [option for option in full_sizes(job) if can_run(site, booked, job, option, 0, longest)]
            if better:
                assert (got.option, got.until) == (better[0], longest)
            elif any(can_run(site, booked, job, option, 0, shortest) for option in full_sizes(job)):
                assert not got.option.fallback
        if got is not None:
            booked.append(booked_by(job, got, start))


@given(sites(), policies)
def test_who_waits_is_told_why(site: Site, policy: BackfillPolicy) -> None:
    result = backfill(*site.arguments, policy)
    booked = begun(site)
    for job, got, start in in_order(site, result):
        wait = result.waits.get(job.uid)
        if wait is not None:
            event(wait.kind)
            assert job.uid not in wait.blockers
            assert set(wait.blockers) <= {run.uid for run in site.running} | {other.uid for other in site.jobs}
            now = [
                option
                for option in full_sizes(job)
                if is_within_quota(site, booked_now(booked, site.now), job, option, 0, 1)
            ]
            if wait.kind == "BeginTime":
                assert job.not_before > site.now
            if wait.kind == "DeadlineUnreachable":
                assert job.latest_end is not None
                assert got is None
                assert earliest(site, booked, job, 0) is None
            if wait.kind in ("Quota", "RunningRunsLimit"):
                assert wait.quota is not None
                assert not now
                assert wait.quota.room < max(option.count for option in full_sizes(job))
            if wait.kind == "Window":
                assert wait.window in {claim.owner for claim in site.claims}
                shortest = job.lengths(0.0)[0]
                for option in now:
                    others = [other for other in booked if not other.uid.startswith("window")]
                    free = free_throughout(site, others, 0, 1) & option.eligible
                    unhindered = free & free_throughout(site, begun(replace(site, running=())), 0, shortest)
                    assert unhindered.bit_count() < option.count
            if wait.kind == "Resources":
                assert not any(can_run(site, booked, job, option, 0, 1) for option in full_sizes(job))
        if got is not None:
            booked.append(booked_by(job, got, start))


def booked_now(booked: Sequence[Booked], now: float) -> list[Booked]:
    """Those who have begun: what is promised for later limits nobody at this moment."""
    return [other for other in booked if other.start <= now]


@given(sites())
def test_nobody_who_starts_out_of_order_delays_a_promise(site: Site) -> None:
    """EASY: with and without those who overtook it, the first that waits gets the same start."""
    result = backfill(*site.arguments, EASY)
    started = {start.uid: start for start in result.starts}
    for position, job in enumerate(site.jobs):
        wait = result.waits.get(job.uid)
        if wait is None or wait.reservation is None:
            continue
        before = [other for other in site.jobs[:position] if other.uid in started]
        if len(before) != sum(1 for other in site.jobs[:position]):
            return  # somebody before it waits as well: the tests of each promise look at that
        alone = backfill(site.now, [*before, job], *site.arguments[2:], EASY)
        assert alone.waits[job.uid].reservation == wait.reservation
        later = [start for start in result.starts if start.uid not in {other.uid for other in before}]
        assert all(start.backfilled for start in later)
        running = [*site.running, *(as_running(site, start) for start in result.starts)]
        free = site.free
        for start in result.starts:
            free &= ~start.nodes
        again = backfill(site.now, [job], running, free, site.claims, site.quota, EASY)
        found = again.waits[job.uid].reservation
        assert found is not None
        assert found.start <= wait.reservation.start
        return


def as_running(site: Site, start: JobStart) -> RunningJob:
    queue = next(job.queue for job in site.jobs if job.uid == start.uid)
    return RunningJob(start.uid, queue, start.option.gpu_type, start.nodes, start.nodes.bit_count(), start.until)


@given(sites(), st.integers(0, 6))
def test_a_forecast_is_what_conservative_backfill_would_promise(site: Site, depth: int) -> None:
    site = replace(site, jobs=[replace(job, not_before=0.0) for job in site.jobs])
    promises = in_order(site, backfill(*site.arguments, CONSERVATIVE))
    estimates = dict(estimate_starts(*site.arguments, depth))
    assert list(estimates) == [job.uid for job in site.jobs[:depth]]
    for job, got, start in promises[:depth]:
        if got is not None and got.option.fallback:
            return  # started smaller: the others find what it left
        assert estimates[job.uid].start == (start if got is not None else None)
        same = [other.uid for other in site.jobs if other.queue == job.queue]
        assert estimates[job.uid].position == same.index(job.uid) + 1


@given(sites(), st.integers(0, 9))
def test_a_forecast_keeps_to_the_time_before_which_a_job_may_not_start(site: Site, not_before: int) -> None:
    site = replace(site, jobs=[replace(job, not_before=float(not_before)) for job in site.jobs[:1]])
    for job in site.jobs:
        first = earliest(site, begun(site), job, not_before)
        assert dict(estimate_starts(*site.arguments, 1))[job.uid].start == (first[0] if first is not None else None)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(60))
def test_the_first_in_order_starts_no_later_than_it_was_first_promised(data: st.DataObject) -> None:
    """A stream of arrivals; runs end at their limit or sooner, and those who come later may overtake."""
    jobs = [replace(job, latest_end=None, not_before=0.0) for job in data.draw(job_lists(most=10))]
    arrivals = {job.uid: data.draw(st.integers(0, 8)) for job in jobs}
    running, free, windows = data.draw(clusters())
    quota = data.draw(quota_rules())
    policy = data.draw(st.sampled_from([EASY, CONSERVATIVE]))
    really = {run.uid: data.draw(st.integers(1, max(1, int(run.ends)))) for run in running}
    waiting: list[Job] = []
    promised: dict[str, float] = {}
    running = [replace(run, ends=max(run.ends, 1.0)) for run in running]
    for now in range(HORIZON):
        for run in [run for run in running if really[run.uid] <= now]:
            free |= run.nodes
            running.remove(run)
        waiting += sorted((job for job in jobs if arrivals[job.uid] == now), key=lambda job: job.uid)
        result = backfill(float(now), waiting, running, free, windows, quota, policy)
        for start in result.starts:
            job = next(job for job in waiting if job.uid == start.uid)
            assert now <= promised.get(job.uid, now)
            waiting.remove(job)
            free &= ~start.nodes
            length = data.draw(st.integers(1, int(start.until - now)))
            really[start.uid] = now + length
            running.append(
                RunningJob(job.uid, job.queue, start.option.gpu_type, start.nodes, start.option.count, start.until)
            )
        if waiting and result.waits[waiting[0].uid].reservation is not None:
            found = result.waits[waiting[0].uid].start
            assert found is not None
            assert found <= promised.setdefault(waiting[0].uid, found)
    assert not any(wait.reservation for wait in result.waits.values())


@given(sites(), policies)
def test_who_is_like_somebody_hears_what_it_would_hear_if_it_were_asked(site: Site, policy: BackfillPolicy) -> None:
    line = [replace(job, uid=f"{job.uid}-{number}") for number in range(12) for job in site.jobs]
    unlike = [replace(job, options=(*map(replace, job.options),)) for job in line]  # equal, and not the same
    together, apart = (backfill(site.now, jobs, *site.arguments[2:], policy) for jobs in (line, unlike))
    assert (together.starts, together.cut) == (apart.starts, apart.cut)
    assert together.waits.items() == apart.waits.items()
    waiting = [job.uid for job in together.waits.waiting(line)]
    assert [(uid, together.waits[uid]) for uid in waiting] == [*zip(waiting, together.waits.in_order, strict=True)]


@pytest.mark.parametrize("policy", [EASY, CONSERVATIVE])
@given(site=sites(), most=st.integers(1, 2))
def test_a_pass_that_is_cut_short_is_the_beginning_of_a_whole_one(
    policy: BackfillPolicy, site: Site, most: int
) -> None:
    whole = backfill(*site.arguments, policy)
    cut = backfill(*site.arguments, replace(policy, admissions=most))
    assert cut.starts == whole.starts[:most]
    assert cut.waits.items() <= whole.waits.items()
    assert cut.cut == (len(cut.starts) == most and len(cut.waits) + most < len(site.jobs))


@given(sites(), st.integers(1, 63))
def test_what_is_held_for_a_job_nobody_else_gets(site: Site, nodes: int) -> None:
    if not site.jobs:
        return
    owner = site.jobs[-1]
    held = NodeClaim(site.now, site.now + 50, nodes, owner.uid)
    site = replace(site, claims=[*site.claims, held])
    result = backfill(*site.arguments, EASY)
    assert not any(start.nodes & nodes for start in result.starts if start.uid != owner.uid)
    for uid, wait in result.waits.items():
        if uid != owner.uid and wait.reservation is not None and wait.reservation.start < held.end:
            assert not wait.reservation.nodes & nodes
