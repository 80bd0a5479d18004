"""What is used of the quotas at a moment to come, against counting everybody who is there by then."""

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.admission.engine.jobs import RunningJob
from lockstep.core.admission.engine.quota import QueueQuota, QuotaBook, QuotaRules, TypeQuota
from lockstep.core.admission.engine.usage import UsageOverTime
from support.small_queues import quota_rules

QUEUES = ("a", "b", "c")
COUNTS = st.integers(1, 4)


def users(uid: str) -> st.SearchStrategy[list[RunningJob]]:
    each = st.builds(
        RunningJob,
        uid=st.just(""),
        queue=st.sampled_from(QUEUES),
        gpu_type=st.sampled_from(["A", "B"]),
        nodes=st.just(0),
        count=COUNTS,
        ends=st.integers(1, 9).map(float),
    )
    return st.lists(each, max_size=6).map(
        lambda found: [replace(run, uid=f"{uid}{number}") for number, run in enumerate(found)]
    )


@given(
    quota_rules(),
    users("held"),
    users("late"),
    users("come"),
    st.sets(st.integers(0, 5)),
    st.sets(st.integers(0, 5)),
    st.integers(0, 9),
)
def test_the_usage_of_a_moment_is_that_of_those_who_are_there(
    rules: QuotaRules,
    held: list[RunningJob],
    late: list[RunningJob],
    come: list[RunningJob],
    gone: set[int],
    leaving: set[int],
    moment: int,
) -> None:
    over_time = UsageOverTime(rules, held)
    sent = frozenset(f"held{number}" for number in gone)
    chosen = [run for number, run in enumerate(held) if number in leaving]
    for more in ([], late):  # what was counted before does not stand in the way of those who are added
        for run in more:
            over_time.add(run)
        there = [run for run in (*held, *more) if run.ends > moment and run.uid not in sent]
        asked, counted = over_time.at(moment, sent, come), UsageOverTime(rules, [*there, *come]).at()
        left = QuotaBook(rules, 0.0, [*(run for run in there if run not in chosen), *come])
        for queue, gpu_type, count in product(QUEUES, ("A", "B"), range(1, 9)):
            needs = [*rules.needs(queue, gpu_type, count)]
            assert [asked.used(account) for account, _ in needs] == [counted.used(account) for account, _ in needs]
            assert asked.has_room(needs, chosen) is (left.refusal(queue, gpu_type, count) is None)


def test_whoever_ends_at_the_moment_has_ended_and_at_no_moment_everybody_is_there() -> None:
    rules = QuotaRules.from_quotas({"a": QueueQuota("", {"A": TypeQuota(8)})})
    over_time = UsageOverTime(rules, [RunningJob("x", "a", "A", 0, 3, 5.0), RunningJob("y", "a", "A", 0, 2, 6.0)])
    [(account, _)] = rules.needs("a", "A", 1)
    assert [over_time.at(moment).used(account) for moment in (4.0, 5.0, 6.0)] == [5, 2, 0]
    assert over_time.at().used(account) == 5
