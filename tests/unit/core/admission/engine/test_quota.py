"""Quotas: what one queue may use, what its cohort lends it, and what everybody is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.admission.engine.jobs import RunningJob
from lockstep.core.admission.engine.quota import QueueQuota, QuotaBook, QuotaRefusal, QuotaRules, TypeQuota

H100, A100 = "H100", "A100"


def running(queue: str, count: int, ends: float = 10.0, gpu_type: str = H100, uid: str = "") -> RunningJob:
    return RunningJob(uid or f"{queue}-{count}-{ends:g}", queue, gpu_type, 0, count, ends)


def book(queues: dict[str, QueueQuota], *runs: RunningJob) -> QuotaBook:
    return QuotaBook(QuotaRules.from_quotas(queues), 0.0, runs)


def of(nominal: int, borrowing: int | None = None, lending: int | None = None, cohort: str = "lab") -> QueueQuota:
    return QueueQuota(cohort, {H100: TypeQuota(nominal, borrowing, lending)})


def refused(refusal: QuotaRefusal | None) -> QuotaRefusal:
    assert refusal is not None
    return refusal


@pytest.mark.parametrize(
    ("a", "b", "used_by_a", "used_by_b", "room"),
    [
        (of(4, cohort=""), of(4, cohort=""), 1, 0, 3),  # in no cohort nobody borrows
        (of(4), of(4), 1, 0, 7),
        (of(4), of(4), 1, 3, 4),
        (of(4), of(4), 0, 8, 0),  # what is lent comes back when its borrower ends, or is made to
        (of(4, borrowing=2), of(4), 1, 0, 5),
        (of(4, borrowing=0), of(4), 1, 0, 3),
        (of(4), of(4, lending=1), 1, 0, 4),  # three are b's alone
        (of(4), of(4, lending=1), 1, 3, 4),  # b uses its own first
        (of(4), of(4, lending=1), 1, 4, 3),
        (of(4, lending=0), of(4), 0, 4, 4),  # a lends nothing, and so finds it all
        (of(4, lending=0), of(4), 4, 0, 4),
        (of(4, lending=9), of(4), 0, 0, 8),
        (of(0), of(4), 0, 0, 4),
        (of(4, lending=2), of(4), 0, 9, 2),  # b uses more than there is: a's guarantee stands
        (of(4), of(4, cohort="other"), 0, 0, 4),
        (QueueQuota("lab"), of(4), 99, 4, 50),  # no quotas at all
        (QueueQuota("lab", {A100: TypeQuota(4)}), of(4), 0, 0, 0),  # quotas, but for others
        (QueueQuota("lab", {A100: TypeQuota(4), "Any": TypeQuota(3)}), of(4), 1, 0, 2),
    ],
)
def test_a_queue_may_use_its_guarantee_and_what_the_pool_has_left(
    a: QueueQuota, b: QueueQuota, used_by_a: int, used_by_b: int, room: int
) -> None:
    here = book({"a": a, "b": b}, running("a", used_by_a), running("b", used_by_b))
    assert here.room("a", H100, 50) == room
    assert here.refusal("a", H100, room) is None
    assert room == 50 or here.refusal("a", H100, room + 1) is not None


def test_a_refusal_names_the_bound_the_amounts_and_who_holds_what_lacks() -> None:
    here = book(
        {"a": of(4), "b": of(4), "c": of(4, lending=1)},
        running("a", 1, uid="small"),
        running("b", 6, uid="borrower"),
        running("c", 2, uid="within its guarantee"),
    )
    refusal = refused(here.refusal("a", H100, 5))
    assert (refusal.bound, refusal.nominal, refusal.used, refusal.room) == ("Cohort", 4, 1, 2)
    assert (refusal.cohort, refusal.pool_size, refusal.pooled) == ("lab", 9, 7)
    assert refusal.holders == ("borrower", "small")


def test_a_queue_is_told_of_its_own_bound_before_that_of_its_cohort() -> None:
    here = book({"a": of(4, borrowing=1), "b": of(4)}, running("a", 3, uid="own"), running("b", 5))
    refusal = refused(here.refusal("a", H100, 3))
    assert (refusal.bound, refusal.limit, refusal.holders) == ("Queue", 5, ("own",))


def test_a_type_without_quota_is_refused_as_such() -> None:
    assert refused(book({"a": of(4)}).refusal("a", A100, 1)).bound == "NoQuota"


def test_the_limit_of_running_runs_counts_runs_of_any_size() -> None:
    here = book({"a": QueueQuota(max_running_runs=2)}, running("a", 64, 5.0, uid="x"), running("a", 1, 9.0, uid="y"))
    refusal = refused(here.refusal("a", "", 1))
    assert (refusal.bound, refusal.used, refusal.limit, set(refusal.holders)) == ("Runs", 2, 2, {"x", "y"})
    assert here.room("a", "", 7) == 7  # a run that runs may grow
    assert here.earliest("a", "", 1, 100.0, 0.0) == 5.0
    assert not book({"a": QueueQuota(max_running_runs=0)}).could_ever_fit("a", "", 1)


def test_borrowed_is_what_goes_beyond_the_nominal_nodes() -> None:
    here = book({"a": of(4), "b": of(4)}, running("a", 6), running("b", 1))
    assert (here.borrowed("a", H100), here.borrowed("b", H100), here.borrowed("none", H100)) == (2, 0, 0)


def test_what_was_taken_is_given_back_whole() -> None:
    here = book({"a": of(4), "b": of(4)}, running("b", 2))
    here.charge("x", "a", H100, 5, 3.0, 8.0)
    assert here.fits("a", H100, 6, 0.0, 3.0)
    assert not here.fits("a", H100, 6, 0.0, 3.5)
    here.release("x")
    assert here.fits("a", H100, 6, 0.0, 100.0)


def test_a_run_past_its_end_still_counts() -> None:
    assert book({"a": of(4)}, running("a", 4, ends=-5.0)).room("a", H100, 9) == 0


quotas = st.builds(
    QueueQuota,
    cohort=st.sampled_from(["", "lab", "lab"]),
    quotas=st.fixed_dictionaries(
        {
            H100: st.builds(
                TypeQuota,
                st.integers(0, 4),
                st.none() | st.integers(0, 3),
                st.none() | st.integers(0, 5),
            )
        }
    ),
    max_running_runs=st.none() | st.integers(0, 3),
)
spans = st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 8), st.integers(1, 6))


def is_within(queues: dict[str, QueueQuota], used: dict[str, int], runs: dict[str, int], queue: str) -> bool:
    """The definition, from the point of view of one queue that has just taken more."""
    quota = queues[queue]
    nominal, borrowing, _ = quota.quotas[H100]
    if quota.max_running_runs is not None and runs[queue] > quota.max_running_runs:
        return False
    if not quota.cohort:
        return used[queue] <= nominal
    if borrowing is not None and used[queue] > nominal + borrowing:
        return False

    def guaranteed(name: str) -> int:
        nominal, _, lending = queues[name].quotas[H100]
        return 0 if lending is None else max(0, nominal - lending)

    members = [name for name in queues if queues[name].cohort == quota.cohort]
    pool = sum(queues[name].quotas[H100].nominal - guaranteed(name) for name in members)
    if used[queue] <= guaranteed(queue):
        return True
    return sum(max(0, used[name] - guaranteed(name)) for name in members) <= pool


@given(
    st.fixed_dictionaries(dict.fromkeys("abc", quotas)),
    st.lists(spans, max_size=5),
    st.lists(spans, max_size=4),
    spans,
)
def test_the_book_agrees_with_the_definition_at_every_instant(
    queues: dict[str, QueueQuota],
    runs: list[tuple[str, int, int, int]],
    takings: list[tuple[str, int, int, int]],
    wanted: tuple[str, int, int, int],
) -> None:
    here = book(queues, *(running(queue, count, start + length) for queue, count, start, length in runs))
    held = [(queue, count, 0, start + length) for queue, count, start, length in runs]
    for number, (queue, count, start, length) in enumerate(takings):
        here.charge(f"taking-{number}", queue, H100, count, float(start), float(start + length))
        held.append((queue, count, start, start + length))

    def is_allowed(queue: str, count: int, start: int, end: int) -> bool:
        for at in range(start, end):
            there = [(name, number) for name, number, since, until in held if since <= at < until] + [(queue, count)]
            used = {name: sum(number for other, number in there if other == name) for name in queues}
            number_of = {name: sum(1 for other, _ in there if other == name) for name in queues}
            if not is_within(queues, used, number_of, queue):
                return False
        return True

    queue, count, start, length = wanted
    assert here.fits(queue, H100, count, start, start + length) == is_allowed(queue, count, start, start + length)
    assert (here.refusal(queue, H100, count) is None) == is_allowed(queue, count, 0, 1)
    found = here.earliest(queue, H100, count, length, start)
    possible = [at for at in range(start, 40) if is_allowed(queue, count, at, at + length)]
    assert found == (possible[0] if possible else None)
