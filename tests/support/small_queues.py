"""Clusters of a few nodes and jobs in whole seconds, and what is true of them instant by instant."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from hypothesis import strategies as st

from lockstep.core.admission.engine.jobs import OVERDUE, Choose, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.quota import QueueQuota, QuotaBook, QuotaRules, TypeQuota
from lockstep.core.model.node_set import ALL, EMPTY, ONE, NodeSet, from_bits, members

NODES = 6
EVERY = ~(ALL << NODES)
OLD = NodeSet(0b001111)
"""Nodes of GPU type A; the others are of type B."""
RACKS = (NodeSet(0b000011), NodeSet(0b001100), NodeSet(0b110000))
HORIZON = 90
"""By then everything that was ever begun or promised in such a cluster has ended."""


def any_nodes(count: int) -> Choose:
    """The first ones."""

    def choose(usable: NodeSet) -> NodeSet | None:
        chosen = EMPTY
        for bit in members(usable):
            if chosen.bit_count() < count:
                chosen |= ONE << bit
        return chosen if chosen.bit_count() == count else None

    return choose


def one_rack(count: int) -> Choose:
    """All in one rack."""
    anywhere = any_nodes(count)

    def choose(usable: NodeSet) -> NodeSet | None:
        return next((nodes for rack in RACKS if (nodes := anywhere(usable & rack)) is not None), None)

    return choose


CHOICES: Mapping[tuple[str, int], Choose] = {
    **{("anywhere", count): any_nodes(count) for count in range(1, NODES + 1)},
    **{("one rack", count): one_rack(count) for count in range(1, NODES + 1)},
}
"""Shared by all jobs that wish for the same, as in the operator."""

OPTIONS: Sequence[Option] = [
    Option(gpu_type, count, eligible, CHOICES[rule, count], fallback, strict=rule != "anywhere")
    for fallback in (False, True)
    for gpu_type, eligible in (("A", OLD), ("B", EVERY & ~OLD), ("A", EVERY))
    for rule, count in CHOICES
    if count <= eligible.bit_count()
]


@dataclass(frozen=True)
class Site:
    """A cluster at time ``now`` and who waits for it."""

    now: float
    jobs: Sequence[Job]
    running: Sequence[RunningJob]
    free: NodeSet
    claims: Sequence[NodeClaim]
    quota: QuotaRules

    @property
    def arguments(self) -> tuple[float, Sequence[Job], Sequence[RunningJob], NodeSet, Sequence[NodeClaim], QuotaRules]:
        """As the engine takes them."""
        return self.now, self.jobs, self.running, self.free, self.claims, self.quota


@dataclass(frozen=True)
class Booked:
    """Nodes that somebody has from ``start`` to ``end``. Without a ``queue`` they count for no quota."""

    uid: str
    nodes: NodeSet
    start: float
    end: float
    queue: str = ""
    gpu_type: str = ""


def begun(site: Site) -> list[Booked]:
    """What holds nodes as the cycle begins."""
    runs = [
        Booked(run.uid, run.nodes, site.now, max(run.ends, site.now + OVERDUE), run.queue, run.gpu_type)
        for run in site.running
    ]
    return runs + [Booked(claim.owner, claim.nodes, claim.start, claim.end) for claim in site.claims]


def free_throughout(site: Site, booked: Iterable[Booked], start: float, end: float) -> NodeSet:
    """Nodes that are free at every second of it."""
    nodes = site.free
    for run in site.running:
        nodes |= run.nodes
    for other in booked:
        if other.start < end and other.end > start:
            nodes &= ~other.nodes
    return nodes


def is_within_quota(site: Site, booked: Iterable[Booked], job: Job, option: Option, start: float, end: float) -> bool:
    """The quotas, which have an oracle of their own, allow the job at each instant."""
    if job.queue not in site.quota.types and job.queue not in site.quota.runs:
        return True
    moments = {start, *(moment for other in booked for moment in (other.start, other.end) if start < moment < end)}
    for moment in moments:
        there = [
            RunningJob(other.uid, other.queue, other.gpu_type, EMPTY, other.nodes.bit_count(), moment + 1)
            for other in booked
            if other.queue and other.start <= moment < other.end
        ]
        book = QuotaBook(site.quota, moment, there)
        if book.refusal(job.queue, option.gpu_type, option.count) is not None:
            return False
    return True


def can_run(site: Site, booked: Sequence[Booked], job: Job, option: Option, start: float, end: float) -> bool:
    """Nobody who has or was promised anything stands in the way of the job in this time."""
    usable = free_throughout(site, booked, start, end) & option.eligible
    return is_placeable(option.choose, option.count, usable) and is_within_quota(site, booked, job, option, start, end)


@cache
def is_placeable(choose: Choose, count: int, usable: NodeSet) -> bool:
    """Some ``count`` of the nodes keep the rules."""
    return any(choose(from_bits(chosen, NODES)) is not None for chosen in combinations(members(usable), count))


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Any cluster. All numbers are whole, so that every moment is a second."""
    return Site(0.0, draw(job_lists()), *draw(clusters()), quota=draw(quota_rules()))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Sequence[RunningJob], NodeSet, Sequence[NodeClaim]]:
    """(running, free, maintenance windows)."""
    free, running = EVERY, []
    for number in range(draw(st.integers(0, 3))):
        nodes = draw(st.integers(0, int(EVERY)).map(NodeSet)) & free & draw(st.sampled_from([OLD, EVERY & ~OLD]))
        if nodes:
            free &= ~nodes
            gpu_type = "A" if nodes & OLD else "B"
            ends = float(draw(st.integers(-1, 9)))
            running.append(RunningJob(f"run-{number}", draw(queue_names), gpu_type, nodes, nodes.bit_count(), ends))
    free &= ~NodeSet(draw(st.sampled_from([0, 0, 0, 0b000001, 0b010100])))  # some are out of order
    windows = [
        NodeClaim(float(start), float(start + length), nodes, f"window-{number}")
        for number, (start, length, nodes) in enumerate(
            draw(
                st.lists(
                    st.tuples(
                        st.integers(-2, 12), st.integers(1, 5), st.sampled_from([EVERY, OLD, NodeSet(0b101), RACKS[2]])
                    ),
                    max_size=2,
                )
            )
        )
    ]
    return running, free, windows


queue_names = st.sampled_from(["a", "b", "c"])


@st.composite
def job_lists(draw: st.DrawFn, most: int = 6) -> list[Job]:
    """Jobs in order."""
    return [draw(jobs(f"job-{number}")) for number in range(draw(st.integers(0, most)))]


@st.composite
def jobs(draw: st.DrawFn, uid: str) -> Job:
    """One job, mostly a plain one."""
    duration = draw(st.integers(1, 8))
    full = [option for option in OPTIONS if not option.fallback]
    options = [draw(st.sampled_from(full)), *draw(st.lists(st.sampled_from(OPTIONS), max_size=1))]
    return Job(
        uid,
        draw(queue_names),
        tuple(options),
        float(duration),
        min_duration=draw(st.none() | st.none() | st.integers(1, duration).map(float)),
        not_before=draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 3.0])),
        latest_end=draw(st.sampled_from([None, None, None, 6.0, 14.0])),
    )


@st.composite
def quota_rules(draw: st.DrawFn) -> QuotaRules:
    """Quotas for none, some or all of the queues."""
    types = st.builds(
        TypeQuota, st.integers(0, 5), st.none() | st.integers(0, 3), st.none() | st.none() | st.integers(0, 4)
    )
    queue = st.builds(
        QueueQuota,
        cohort=st.sampled_from(["", "lab"]),
        quotas=st.just({}) | st.fixed_dictionaries({"A": types, "Any": types}),
        max_running_runs=st.none() | st.none() | st.integers(0, 3),
    )
    return QuotaRules.from_quotas(draw(st.dictionaries(queue_names, queue)))
