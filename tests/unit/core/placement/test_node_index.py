"""Placement on sets of nodes against placement node by node, and the index that it looks at."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.accelerators import ACCELERATORS, NO_GPUS, GpuRequest
from lockstep.core.model.snapshot import NodeView, Taint
from lockstep.core.placement.node_fit import Expression, Requirement, Toleration
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.node_pool import CandidateNodes
from lockstep.core.placement.placement import ClusterNodes, Placed, Unplaceable, place
from support import placement_by_node
from support.two_racks import site

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"
EVERY = tuple(ACCELERATORS)
LEVELS = {"rack": RACK, "zone": ZONE}
GPU_TYPES = {"H100": {"gpu": "h100"}, "H200": {"gpu": "h200"}, "Any": {}}
EIGHT = Requirement(resources={GPU: 8})
NAMES = [f"n{number}" for number in (1, 2, 3, 9, 10, 11, 20, 100)] + ["a-1", "a-02", "a-2"]
GONE = ["n5", "zz"]

seldom = st.sampled_from([False] * 5 + [True])
racks = st.sampled_from(["r1", "r2", "r10", "r2", "r1", None, ""])
zones = st.sampled_from(["a", "b2", "b10", "a", "a", None, ""])


@st.composite
def node_views(draw: st.DrawFn, name: str, *, alike: bool = False) -> NodeView:
    if alike:
        places = {RACK: draw(st.sampled_from(["r1", "r2", "r10"])), ZONE: draw(st.sampled_from(["a", "b2"]))}
        return NodeView(name=name, uid=name, labels=places, allocatable={"cpu": 192, GPU: 8})
    labels = {RACK: draw(racks), ZONE: draw(zones), "gpu": draw(st.sampled_from(["h100", "h200", None]))}
    labels["generation"] = draw(st.sampled_from(["3", "4", "x", None]))
    gpus = draw(st.sampled_from([GPU, GPU, GPU, AMD]))
    allocatable = {"cpu": draw(st.sampled_from([192, 96])), gpus: draw(st.sampled_from([8, 8, 4, 0]))}
    if draw(seldom):
        allocatable[draw(st.sampled_from([AMD, "nvidia.com/mig-1g.10gb"]))] = 4
    labels["nvidia.com/gpu.count"] = draw(st.sampled_from([None, None, None, "8", "0"]))
    withheld = {gpus: draw(st.sampled_from([8, 4, 0]))} if draw(seldom) and not allocatable[gpus] else {}
    taints = [Taint("gpu", "NoSchedule", "broken"), Taint("node.kubernetes.io/disk-pressure", "NoSchedule")]
    return NodeView(
        name=name,
        uid=name,
        labels={key: value for key, value in labels.items() if value is not None},
        allocatable={key: value for key, value in allocatable.items() if value},
        taints=tuple(taint for taint in taints if draw(seldom)),
        unschedulable=draw(seldom),
        ready=not draw(seldom),
        deleting=draw(seldom),
        drain="asked for" if draw(seldom) else "",
        conditions={"XidCriticalError": "GPU 3"} if draw(seldom) else {},
        withheld=withheld,
    )


names = st.lists(st.sampled_from(NAMES), unique=True)
few = st.one_of(st.just([]), st.just([]), names)
expressions = st.builds(
    Expression,
    st.sampled_from(["gpu", "generation", "metadata.name", RACK]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
    st.lists(st.sampled_from(["h100", "3", "n1", "n10", "r1"]), min_size=1, max_size=2).map(tuple),
)
gpu_requests = st.sampled_from(
    [
        NO_GPUS,
        GpuRequest(None, EVERY),
        GpuRequest(8, EVERY),
        GpuRequest(None, (AMD,), named=True),
        GpuRequest(8, (GPU,)),
    ]
)
requirements = st.builds(
    Requirement,
    resources=st.sampled_from([{}, {GPU: 4}, {GPU: 8, "cpu": 100}]),
    open=st.sampled_from([(), ("cpu",)]),
    gpus=gpu_requests,
    labels=st.sampled_from([(), (), (), (("gpu", "h100"),)]),
    terms=st.one_of(st.just(()), st.lists(st.lists(expressions, max_size=2).map(tuple), max_size=2).map(tuple)),
    tolerations=st.sampled_from([(), (Toleration("gpu", "Exists"),)]),
    excluded=few.map(frozenset),
    named=few.map(frozenset),
    avoided=few.map(lambda avoided: {name: f"failed {index % 2}" for index, name in enumerate(avoided)}),
    drain_taints=st.sampled_from([frozenset(), frozenset({"gpu"})]),
    levels=st.sampled_from([(), (), (RACK,)]),
)


@st.composite
def rules(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for level in draw(st.lists(st.sampled_from(["rack", "zone"]), unique=True)):
        policy = draw(st.sampled_from(["Any", "Pack", "Contiguous", "Spread"]))
        most = draw(st.integers(1, 3)) if policy == "Spread" else draw(st.none() | st.integers(1, 4))
        mode = draw(st.sampled_from(["Required", "Preferred"]))
        found.append({"level": level, "policy": policy, "mode": mode, **({"maxNodes": most} if most else {})})
    return found


@st.composite
def placements(draw: st.DrawFn) -> PlacementSpec:
    types = draw(st.sampled_from([[], [], [], ["H100"], ["H200", "H100"], ["Any"], ["H900"]]))
    named = draw(st.sampled_from([[], [], ["n1", "gone"]]))
    return PlacementSpec.model_validate({"topology": draw(rules()), "gpuTypes": types, "nodes": named})


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, NodeView], dict[str, dict[str, int]]]:
    alike = draw(st.booleans())  # with many nodes that will do it is the rules that decide
    nodes = {name: draw(node_views(name, alike=alike)) for name in (NAMES if alike else draw(names.filter(bool)))}
    foreign = {name: {"cpu": 150, **({GPU: 1} if draw(seldom) else {})} for name in draw(few) if name in nodes}
    return nodes, foreign


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    kept = draw(st.one_of(st.just([]), st.lists(st.sampled_from(NAMES + GONE), unique=True, max_size=3)))
    return {
        "requirement": draw(st.just(EIGHT) | requirements),
        "placement": draw(placements()),
        "kept": kept,
        "count": len(kept) + draw(st.integers(1, 6)),
        "booked": draw(few),
        "ending": draw(names),
    }


def asked(index: NodeIndex, question: dict[str, Any]) -> Placed | Unplaceable:
    booked = index.mask(question["booked"])
    cluster = ClusterNodes(index, booked=booked, ending=booked & index.mask(question["ending"]))
    return place(cluster, question["requirement"], question["count"], question["placement"], question["kept"])


def same_as_node_by_node(
    result: Placed | Unplaceable, nodes: Any, foreign: Any, question: dict[str, Any], levels: Any = LEVELS
) -> bool:
    cluster = placement_by_node.Cluster(
        nodes, foreign, question["booked"], levels, GPU_TYPES, set(question["ending"]) & set(question["booked"])
    )
    expected = placement_by_node.place(
        cluster, question["requirement"], question["count"], question["placement"], question["kept"]
    )
    if isinstance(result, Placed):
        assert expected == placement_by_node.Placed(result.nodes, result.gpu_type)
    else:
        assert expected == placement_by_node.Unplaceable(result.message, result.hopeless, result.fits)
    return True


def index_of(nodes: Any, foreign: Any = None, before: NodeIndex | None = None) -> NodeIndex:
    return NodeIndex.from_nodes(nodes, foreign or {}, LEVELS, GPU_TYPES, before)


@given(worlds(), st.lists(questions(), min_size=1, max_size=3), st.sampled_from([LEVELS, LEVELS, {"rack": RACK}, {}]))
def test_placement_on_sets_gives_what_placement_node_by_node_gives(
    world: Any, several: list[dict[str, Any]], levels: dict[str, str]
) -> None:
    nodes, foreign = world
    index = NodeIndex.from_nodes(nodes, foreign, levels, GPU_TYPES)
    for question in several:
        assert same_as_node_by_node(asked(index, question), nodes, foreign, question, levels)


@given(worlds(), questions(), st.data())
def test_an_index_made_from_the_one_before_answers_like_a_new_one(
    world: Any, question: dict[str, Any], data: st.DataObject
) -> None:
    nodes, foreign = world
    index = index_of(nodes, foreign)
    for _ in range(3):
        asked(index, question)
        changed = data.draw(few)
        nodes = nodes | {name: data.draw(node_views(name)) for name in changed}
        if len(nodes) > 1 and data.draw(seldom):
            nodes = dict(list(nodes.items())[1:])
        foreign = {name: {"cpu": 150} for name in data.draw(few) if name in nodes}
        index = index_of(nodes, foreign, before=index)
        assert same_as_node_by_node(asked(index, question), nodes, foreign, question)


@given(worlds(), questions(), st.lists(names, min_size=1, max_size=4))
def test_what_was_asked_before_changes_no_answer(world: Any, question: dict[str, Any], bookings: list[Any]) -> None:
    nodes, foreign = world
    index = index_of(nodes, foreign)
    for booked in bookings:
        later = question | {"booked": booked}
        assert asked(index, later) == asked(index_of(nodes, foreign), later)


PACKED = PlacementSpec.model_validate({"topology": [{"level": "rack", "policy": "Pack", "mode": "Required"}]})


@given(worlds(), questions(), st.sampled_from([LEVELS, {"rack": RACK}, {}]))
def test_rules_that_are_only_preferred_refuse_no_nodes_that_are_enough(
    world: Any, question: dict[str, Any], levels: dict[str, str]
) -> None:
    index = NodeIndex.from_nodes(*world, levels, GPU_TYPES)
    candidates = CandidateNodes.for_requirement(index, question["requirement"], question["placement"])
    for kind in candidates.kinds(count := question["count"]) if not candidates.is_strict else ():
        available = kind.able & ~index.mask(question["booked"])
        chosen = candidates.choose(kind, count, available)
        assert (chosen is not None) == (available.bit_count() >= count)


def test_an_index_of_the_same_nodes_is_the_one_before() -> None:
    nodes, foreign = site(), {"n1": {"cpu": 1}}
    index = index_of(nodes, foreign)
    assert index_of(dict(reversed(nodes.items())), dict(foreign), before=index) is index


def test_answers_are_remembered_until_a_node_changes_that_matters() -> None:
    nodes = site()
    index = index_of(nodes)
    candidates = CandidateNodes.for_requirement(index, EIGHT, PACKED)
    nodes = nodes | {"n2": replace(nodes["n2"], ready_changed_at=5.0)}
    index = index_of(nodes, before=index)
    assert CandidateNodes.for_requirement(index, EIGHT, PACKED) is candidates
    assert index.view("n2").ready_changed_at == 5.0
    nodes = nodes | {"n2": replace(nodes["n2"], unschedulable=True)}
    index = index_of(nodes, before=index)
    assert CandidateNodes.for_requirement(index, EIGHT, PACKED).able == index.everything & ~index.mask(["n2"])


def test_a_node_in_another_rack_or_a_new_one_changes_the_order_of_ranks() -> None:
    index = index_of(site())
    everything = ("n1", "n2", "n3", "n10", "n11", "n12")
    assert index.names(index.everything) == everything
    moved = index_of(site(n1={"labels": {RACK: "r3", ZONE: "a"}}), before=index)
    assert moved.names(moved.everything) == (*everything[1:], "n1")
    grown = index_of(site() | {"n4": NodeView("n4", "n4", {RACK: "r1", ZONE: "a"}, {})}, before=index)
    assert grown.names(grown.everything) == ("n1", "n2", "n3", "n4", "n10", "n11", "n12")


def test_no_words_are_made_for_a_run_that_nobody_asks_about() -> None:
    index = index_of(site())
    candidates = Unspoken(index, EIGHT, PACKED)
    (kind,) = candidates.kinds(9)
    assert candidates.choose(kind, 9, index.everything) is None
    assert Unplaceable(candidates, 9, 0, 0, 0).fits == 6


class Unspoken(CandidateNodes):
    """Candidates that are asked for no reasons."""

    def refused(self, booked: int, ending: int) -> Iterator[Any]:
        raise AssertionError("words were made")
