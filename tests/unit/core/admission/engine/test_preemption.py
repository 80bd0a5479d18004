"""Whom a run that waits may send away, against brute force on small clusters."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep.core.admission.engine.jobs import Job, Option, RunningJob
from lockstep.core.admission.engine.preemption import Preemption, PreemptionPolicy, Victim, can_preempt, preempt
from lockstep.core.admission.engine.quota import QueueQuota, QuotaBook, QuotaRules, TypeQuota
from lockstep.core.admission.engine.usage import UsageOverTime
from support.examples import examples
from support.small_queues import CHOICES, EVERY, OLD, OPTIONS, quota_rules

NO_QUOTA = QuotaRules.from_quotas({})
WITHIN = PreemptionPolicy("LowerPriority")
RECLAIM = PreemptionPolicy("Never", "Any")


def option(count: int, rule: str = "anywhere", eligible: int = EVERY) -> Option:
    return Option("A", count, eligible, CHOICES[rule, count])


def job(*options: Option, queue: str = "a") -> Job:
    return Job("waits", queue, options, 100.0)


def victim(uid: str, nodes: int, lost: float = 1.0, value: int = 0, queue: str = "a", until: float = 0.0) -> Victim:
    return Victim(uid, queue, "A", nodes, nodes.bit_count(), value, lost, until)


def as_running(victims: Iterable[Victim]) -> list[RunningJob]:
    return [RunningJob(each.uid, each.queue, each.gpu_type, each.nodes, each.count, 50.0) for each in victims]


def found_among(
    victims: Sequence[Victim],
    wanted: Option,
    rules: QuotaRules = NO_QUOTA,
    policy: PreemptionPolicy = WITHIN,
    value: int = 10,
) -> tuple[str, ...] | None:
    free = EVERY
    for each in victims:
        free &= ~each.nodes
    found = preempt(0.0, job(wanted), value, free, victims, UsageOverTime(rules, as_running(victims)).at(), policy)
    return found.victims if found is not None else None


def test_the_runs_that_lose_least_go() -> None:
    victims = [victim("dear", 0b000011, 900.0), victim("cheap", 0b001100, 10.0), victim("other", 0b110000, 50.0)]
    assert found_among(victims, option(2)) == ("cheap",)
    assert found_among(victims, option(4)) == ("cheap", "other")


def test_one_large_run_goes_rather_than_many_that_lose_more_together() -> None:
    victims = [victim(f"small-{bit}", 1 << bit, 10.0) for bit in range(3)] + [victim("large", 0b111000, 20.0)]
    assert found_among(victims, option(3)) == ("large",)


def test_nobody_goes_whose_nodes_would_not_do() -> None:
    """Two nodes would come free in two racks, and one rack is asked for."""
    victims = [victim("x", 0b000001), victim("y", 0b000100), victim("rack", 0b110000, 500.0), victim("z", 0b001010)]
    assert found_among(victims, option(2, "one rack")) == ("x", "z")
    assert found_among([*victims[:2], victim("up", 0b111010, value=10)], option(2, "one rack")) is None


def test_no_run_of_its_class_or_above_goes_within_the_queue() -> None:
    assert found_among([victim("peer", EVERY, value=10)], option(1)) is None
    assert found_among([victim("lower", EVERY, value=9)], option(1)) == ("lower",)


def test_a_run_that_is_protected_stays() -> None:
    assert found_among([victim("young", EVERY, until=1.0)], option(1)) is None


def test_a_run_that_could_start_anyway_sends_nobody_away() -> None:
    assert found_among([victim("x", 0b1)], option(2)) is None


def lab(**nominal: int) -> QuotaRules:
    return QuotaRules.from_quotas(
        {queue: QueueQuota("lab", {"A": TypeQuota(nodes)}) for queue, nodes in nominal.items()}
    )


def test_nodes_that_were_lent_come_back_from_those_who_borrow() -> None:
    victims = [victim("borrower", 0b001111, 99.0, 99, "b"), victim("owner", 0b110000, 1.0, 0, "c")]
    assert found_among(victims, option(2), lab(a=3, b=1, c=2), RECLAIM) == ("borrower",)
    assert found_among(victims, option(4), lab(a=3, b=1, c=2), RECLAIM) is None  # more than its own
    assert found_among(victims, option(2), lab(a=3, b=1, c=2), PreemptionPolicy("Never", "LowerPriority")) is None
    assert found_among(victims, option(2), lab(a=3, b=4, c=2), RECLAIM) is None  # nobody borrows
    assert found_among(victims, option(2), NO_QUOTA, RECLAIM) is None


def test_a_queue_that_no_longer_borrows_loses_nothing_more() -> None:
    victims = [victim(f"b-{bit}", 1 << bit, 1.0, 0, "b") for bit in range(6)]
    assert found_among(victims, option(3), lab(a=3, b=3), RECLAIM) == ("b-0", "b-1", "b-2")
    assert found_among(victims, option(3), lab(a=3, b=4), RECLAIM) is None


def test_quota_is_freed_as_well_as_nodes() -> None:
    rules = QuotaRules.from_quotas({"a": QueueQuota("", {"A": TypeQuota(3)})})
    victims = [victim("x", 0b000011, 5.0), victim("y", 0b000100, 9.0)]
    assert found_among(victims, option(1), rules) == ("x",)
    assert found_among(victims, option(3), rules) == ("x", "y")


def test_who_was_picked_first_is_spared_if_the_next_is_enough_alone() -> None:
    """Quota is what lacks: x frees too little of it, and y alone enough."""
    rules = QuotaRules.from_quotas({"a": QueueQuota("", {"A": TypeQuota(3)})})
    victims = [victim("x", 0b000001, 1.0), victim("y", 0b110000, 9.0)]
    assert found_among(victims, option(2, eligible=OLD), rules) == ("y",)


def allowed(
    chosen: Sequence[Victim],
    waits: Job,
    value: int,
    rules: QuotaRules,
    policy: PreemptionPolicy,
    wanted: Option,
    running: Sequence[RunningJob],
) -> bool:
    """The rules, read off the definition."""
    own = [each for each in chosen if each.queue == waits.queue]
    others = [each for each in chosen if each.queue != waits.queue]
    if any(each.protected_until > 0 for each in chosen):
        return False
    if own and (policy.within_queue == "Never" or any(each.class_value >= value for each in own)):
        return False
    if not others:
        return True
    account = rules.account(waits.queue, wanted.gpu_type)
    cohort = rules.cohorts.get(waits.queue)
    if policy.reclaim_within_cohort == "Never" or account is None or cohort is None:
        return False
    if policy.reclaim_within_cohort == "LowerPriority" and any(each.class_value >= value for each in others):
        return False
    gone = {each.uid for each in chosen}
    book = QuotaBook(rules, 0.0, running)
    for each in others:
        if rules.cohorts.get(each.queue) != cohort:
            return False
        theirs = [
            other.count
            for other in others
            if rules.account(other.queue, other.gpu_type) == rules.account(each.queue, each.gpu_type)
        ]
        if sum(theirs) - max(theirs) >= book.borrowed(each.queue, each.gpu_type):
            return False
    used = sum(
        run.count
        for run in running
        if run.uid not in gone and run.queue == waits.queue and rules.account(run.queue, run.gpu_type) == account
    )
    return used + wanted.count <= account.nominal


def would_start(
    chosen: Sequence[Victim],
    waits: Job,
    wanted: Option,
    available: int,
    rules: QuotaRules,
    running: Sequence[RunningJob],
) -> bool:
    gone = {each.uid for each in chosen}
    book = QuotaBook(rules, 0.0, [run for run in running if run.uid not in gone])
    for each in chosen:
        available |= each.nodes
    enough = wanted.choose(available & wanted.eligible) is not None
    return enough and book.refusal(waits.queue, wanted.gpu_type, wanted.count) is None


@st.composite
def situations(
    draw: st.DrawFn,
) -> tuple[Job, int, int, list[Victim], list[RunningJob], QuotaRules, PreemptionPolicy]:
    available, victims = EVERY, []
    for number in range(draw(st.integers(0, 6))):
        nodes = draw(st.sampled_from([OLD, EVERY & ~OLD])) & available & draw(st.integers(1, EVERY))
        if nodes:
            available &= ~nodes
            victims.append(
                Victim(
                    f"v{number}",
                    draw(st.sampled_from("abc")),
                    "A" if nodes & OLD else "B",
                    nodes,
                    nodes.bit_count(),
                    draw(st.integers(0, 3)),
                    float(draw(st.integers(0, 20))),
                    draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 9.0])),
                )
            )
    options = draw(st.lists(st.sampled_from([each for each in OPTIONS if not each.fallback]), min_size=1, max_size=2))
    policy = PreemptionPolicy(
        draw(st.sampled_from(["Never", "LowerPriority"])), draw(st.sampled_from(["Never", "LowerPriority", "Any"]))
    )
    waits = job(*options, queue=draw(st.sampled_from("ab")))
    available &= draw(st.sampled_from([0, EVERY]))
    return waits, draw(st.integers(0, 4)), available, victims, as_running(victims), draw(quota_rules()), policy


def subsets(victims: Sequence[Victim]) -> Iterable[tuple[Victim, ...]]:
    return (chosen for size in range(len(victims) + 1) for chosen in combinations(victims, size))


@given(situations())
@settings(max_examples=examples(400))
def test_a_preemption_frees_what_it_says_by_the_rules_and_spares_whom_it_can(
    situation: tuple[Job, int, int, list[Victim], list[RunningJob], QuotaRules, PreemptionPolicy],
) -> None:
    waits, value, available, victims, running, rules, policy = situation
    found = preempt(0.0, waits, value, available, victims, UsageOverTime(rules, running).at(), policy)
    assert can_preempt(0.0, waits, value, available, victims, UsageOverTime(rules, running).at(), policy) is (
        found is not None
    )

    def does(chosen: Sequence[Victim], wanted: Option) -> bool:
        return would_start(chosen, waits, wanted, available, rules, running) and allowed(
            chosen, waits, value, rules, policy, wanted, running
        )

    if any(would_start((), waits, wanted, available, rules, running) for wanted in waits.options):
        assert found is None
        return
    costs = [
        sum(each.lost for each in chosen)
        for wanted in waits.options
        for chosen in subsets(victims)
        if does(chosen, wanted)
    ]
    assert (found.lost if found is not None else None) == min(costs, default=None), "the least work is lost"
    if found is None:
        return
    chosen = [each for each in victims if each.uid in found.victims]
    event("own queue" if all(each.queue == waits.queue for each in chosen) else "cohort")
    assert_is_sound(found, chosen, available)
    assert does(chosen, found.option)
    assert not any(does(fewer, found.option) for fewer in subsets(chosen) if len(fewer) < len(chosen))


def assert_is_sound(found: Preemption, chosen: Sequence[Victim], available: int) -> None:
    freed = available
    for each in chosen:
        freed |= each.nodes
    assert found.nodes & freed & found.option.eligible == found.nodes
    assert found.nodes.bit_count() == found.option.count
    assert found.lost == sum(each.lost for each in chosen)
    assert len(found.victims) == len(chosen)


@given(situations())
def test_the_cheapest_single_victim_is_found_where_one_is_enough(
    situation: tuple[Job, int, int, list[Victim], list[RunningJob], QuotaRules, PreemptionPolicy],
) -> None:
    waits, value, available, victims, running, _, _ = situation
    victims = [replace(each, queue="a") for each in victims]
    waits = replace(waits, queue="a", options=waits.options[:1])
    found = preempt(0.0, waits, value, available, victims, UsageOverTime(NO_QUOTA, running).at(), WITHIN)
    if found is None:
        return
    one = [
        each.lost
        for each in victims
        if each.class_value < value
        and each.protected_until <= 0
        and would_start([each], waits, waits.options[0], available, NO_QUOTA, running)
    ]
    assert not one or found.lost <= min(one)


def test_no_greedy_order_has_the_last_word_among_a_few() -> None:
    """By work lost for each node, by work lost, by nodes: each would take another run than the best two."""
    victims = [
        victim("v0", 0b0000001, 7.0),
        victim("v1", 0b0000010, 4.0),
        victim("v2", 0b0001100, 5.0),
        victim("v3", 0b1110000, 9.0),
    ]
    four = Option("A", 4, 0b1111111, lambda usable: usable if usable.bit_count() >= 4 else None)
    found = preempt(0.0, job(four), 10, 0, victims, UsageOverTime(NO_QUOTA, as_running(victims)).at(), WITHIN)
    assert found is not None
    assert (found.victims, found.lost) == (("v1", "v3"), 13.0)


def test_two_that_borrow_are_found_together_where_a_cheaper_one_would_use_up_what_may_go() -> None:
    rack = 0b1111 << 2

    def whole_rack(usable: int) -> int | None:
        return rack if usable & rack == rack else None

    victims = [victim("cheap", 0b11, 1.0, 0, "b"), *(victim(f"p{n}", 0b11 << n, 9.0, 0, "b") for n in (2, 4))]
    wanted = Option("A", 4, EVERY, whole_rack)
    args = (0.0, job(wanted), 10, 0, victims, UsageOverTime(lab(a=4, b=3), as_running(victims)).at(), RECLAIM)
    assert can_preempt(*args)
    found = preempt(*args)
    assert found is not None
    assert found.victims == ("p2", "p4")


def test_among_many_a_single_run_goes_that_loses_less_than_the_first_few() -> None:
    small = [victim(f"small-{bit}", 1 << bit, 10.0 + bit) for bit in range(8)]
    wide = Option("A", 2, (1 << 16) - 1, lambda usable: usable if usable.bit_count() >= 2 else None)
    dear = victim("large", 0b111 << 8, 15.0)
    found = preempt(
        0.0, job(wide), 10, 0, [*small, dear], UsageOverTime(NO_QUOTA, as_running([*small, dear])).at(), WITHIN
    )
    assert found is not None
    assert (found.victims, found.lost) == (("large",), 15.0)


def test_among_many_who_borrow_the_one_is_found_whose_nodes_lie_together() -> None:
    """What its queue has borrowed is too little for all: those who are cheaper would use it up."""
    together = 0b11 << 20

    def one_rack(usable: int) -> int | None:
        return together if usable & together == together else None

    spread = [victim(f"spread-{bit}", 0b100000001 << bit, 1.0, 0, "b") for bit in range(8)]
    victims = [*spread, victim("packed", together, 100.0, 0, "b")]
    rules = lab(a=2, b=16)
    wanted = Option("A", 2, (1 << 24) - 1, one_rack)
    found = preempt(0.0, job(wanted), 10, 0, victims, UsageOverTime(rules, as_running(victims)).at(), RECLAIM)
    assert found is not None
    assert found.victims == ("packed",)
