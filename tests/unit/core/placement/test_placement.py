"""Which nodes a gang gets, and what is said when it gets none."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.accelerators import ACCELERATORS, NO_GPUS, GpuRequest
from lockstep.core.model.snapshot import NodeView, Taint
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.placement import ClusterNodes, Placed, Unplaceable, place

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
OPEN_GPUS = GpuRequest(None, tuple(ACCELERATORS))
H100, H200 = {"gpu": "h100"}, {"gpu": "h200"}
EIGHT_GPUS = Requirement(resources={GPU: 8})


def node(name: str, rack: str = "", zone: str = "", labels: dict[str, str] | None = None, **changes: Any) -> NodeView:
    marks = {RACK: rack, ZONE: zone}
    return NodeView(
        name=name,
        uid=name,
        labels={key: value for key, value in marks.items() if value} | (labels or {}),
        allocatable=changes.pop("allocatable", {"cpu": 192_000, "memory": 2**41, GPU: 8}),
        **changes,
    )


def cluster(
    nodes: Sequence[NodeView], booked: Sequence[str] = (), foreign: dict[str, Any] | None = None
) -> ClusterNodes:
    index = NodeIndex.from_nodes(
        nodes={view.name: view for view in nodes},
        foreign=foreign or {},
        levels={"rack": RACK, "zone": ZONE},
        gpu_types={"H100": H100, "H200": H200},
    )
    return ClusterNodes(index, booked=index.mask(booked))


def racks(**sizes: int) -> list[NodeView]:
    """Nodes r1-0, r1-1, … of racks with so many nodes each."""
    return [node(f"{rack}-{index}", rack) for rack, size in sizes.items() for index in range(size)]


def topology(policy: str, mode: str = "Required", level: str = "rack", most: int | None = None) -> dict[str, Any]:
    return {"level": level, "policy": policy, "mode": mode} | ({"maxNodes": most} if most else {})


def placement(*rules: dict[str, Any], **fields: Any) -> PlacementSpec:
    return PlacementSpec.model_validate({"topology": list(rules), **fields})


def placed(result: Placed | Unplaceable) -> tuple[str, ...]:
    assert isinstance(result, Placed), result
    return result.nodes


def refused(result: Placed | Unplaceable) -> Unplaceable:
    assert isinstance(result, Unplaceable), result
    return result


def racks_of(names: Sequence[str]) -> list[str]:
    return [name.partition("-")[0] for name in names]


def test_ranks_follow_the_natural_order_of_racks_and_nodes() -> None:
    nodes = [node(name, rack) for name, rack in (("n10", "r2"), ("n9", "r2"), ("n3", "r10"), ("n20", "r1"))]
    assert placed(place(cluster(nodes), EIGHT_GPUS, 4, placement())) == ("n20", "n9", "n10", "n3")


@pytest.mark.parametrize(
    ("sizes", "count", "rule", "expected"),
    [
        ({"r1": 8, "r2": 4}, 4, topology("Pack"), ["r2"] * 4),
        ({"r1": 8, "r2": 6, "r3": 4}, 10, topology("Pack"), ["r2"] * 6 + ["r3"] * 4),
        ({"r1": 4, "r2": 4}, 4, topology("Pack", most=2), ["r1", "r1", "r2", "r2"]),
        ({"r1": 2, "r2": 2, "r3": 3, "r4": 3}, 5, topology("Contiguous"), ["r2"] * 2 + ["r3"] * 3),
        ({"r1": 3, "r2": 3, "r3": 3}, 3, topology("Spread", most=1), ["r1", "r2", "r3"]),
        ({"r1": 1, "r2": 3, "r3": 3}, 5, topology("Spread", most=2), ["r1", "r2", "r2", "r3", "r3"]),
        ({"r1": 1, "r2": 4}, 3, topology("Spread", "Preferred", most=1), ["r1", "r2", "r2"]),
        ({"r1": 3, "r2": 3}, 4, topology("Any", most=2), ["r1", "r1", "r2", "r2"]),
    ],
    ids=lambda value: value["policy"] if isinstance(value, dict) and "policy" in value else None,
)
def test_racks_are_chosen_by_policy(
    sizes: dict[str, int], count: int, rule: dict[str, Any], expected: list[str]
) -> None:
    nodes = placed(place(cluster(racks(**sizes)), EIGHT_GPUS, count, placement(rule)))
    assert racks_of(nodes) == expected


def test_without_a_rule_the_gang_is_packed_all_the_same() -> None:
    assert racks_of(placed(place(cluster(racks(r1=3, r2=4)), EIGHT_GPUS, 4, placement()))) == ["r2"] * 4


def test_a_full_rack_between_two_others_makes_them_no_neighbours() -> None:
    world = cluster(racks(r1=2, r2=2, r3=2), booked=["r2-0", "r2-1"])
    result = refused(place(world, EIGHT_GPUS, 4, placement(topology("Contiguous"))))
    assert not result.hopeless
    assert "Contiguous by rack" in result.message


def test_a_rack_that_could_never_serve_the_run_does_not_come_between_two_others() -> None:
    nodes = [*racks(r1=2, r3=2), node("r2-0", "r2", allocatable={GPU: 4})]
    result = place(cluster(nodes), EIGHT_GPUS, 4, placement(topology("Contiguous")))
    assert racks_of(placed(result)) == ["r1", "r1", "r3", "r3"]


def test_in_a_zone_that_is_not_filled_the_first_names_are_taken_whatever_their_rack() -> None:
    nodes = [node(name, rack, "a") for name, rack in (("n1", "r2"), ("n2", "r2"), ("n3", "r1"), ("n4", "r1"))]
    assert placed(place(cluster(nodes), EIGHT_GPUS, 3, placement(topology("Pack", level="zone")))) == ("n3", "n1", "n2")


def test_a_preferred_wish_gives_way_where_a_required_one_waits() -> None:
    world = cluster(racks(r1=2, r2=2, r3=2), booked=["r2-0", "r2-1"])
    nodes = placed(place(world, EIGHT_GPUS, 4, placement(topology("Contiguous", "Preferred"))))
    assert racks_of(nodes) == ["r1", "r1", "r3", "r3"]


def test_required_pack_waits_for_as_few_racks_as_an_idle_cluster_would_give() -> None:
    world = cluster(racks(r1=4, r2=4), booked=["r1-0", "r2-0"])
    result = refused(place(world, EIGHT_GPUS, 4, placement(topology("Pack"))))
    assert not result.hopeless
    assert racks_of(placed(place(world, EIGHT_GPUS, 4, placement(topology("Pack", "Preferred"))))) == [
        "r1",
        "r1",
        "r1",
        "r2",
    ]


def test_the_last_listed_wish_gives_way_first() -> None:
    nodes = [node(f"r{r}-{i}", f"r{r}", zone) for r, zone in ((1, "a"), (2, "a"), (3, "b")) for i in range(2)]
    zone_first = placement(topology("Pack", level="zone"), topology("Spread", "Preferred", most=1))
    assert racks_of(placed(place(cluster(nodes), EIGHT_GPUS, 3, zone_first))) == ["r1", "r1", "r2"]


def test_the_same_rack_name_in_two_zones_is_two_racks() -> None:
    nodes = [node(f"{zone}-{i}", "r1", zone) for zone in ("a", "b") for i in range(2)]
    spread = placement(topology("Spread", most=1))
    assert placed(place(cluster(nodes), EIGHT_GPUS, 2, spread)) == ("a-0", "b-0")


def test_a_required_rule_refuses_nodes_without_its_label() -> None:
    labelled = Requirement(resources={}, levels=(RACK,))
    result = refused(place(cluster([node("n1", "r1"), node("n2")]), labelled, 2, placement(topology("Pack"))))
    assert result.hopeless
    assert f"1 without the label {RACK} (n2)" in result.message


def test_the_whole_gang_gets_one_gpu_type_the_first_that_will_do() -> None:
    nodes = [node(f"a{i}", labels=H100) for i in range(2)] + [node(f"b{i}", labels=H200) for i in range(3)]
    types = placement(gpuTypes=["H100", "H200"])
    assert place(cluster(nodes), EIGHT_GPUS, 2, types) == Placed(("a0", "a1"), "H100")
    assert place(cluster(nodes), EIGHT_GPUS, 3, types) == Placed(("b0", "b1", "b2"), "H200")
    result = refused(place(cluster(nodes), EIGHT_GPUS, 4, types))
    assert result.hopeless
    assert "of one GPU type" in result.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpuTypes": ["H900"]}, "GPU type H900 is not in the operator's configuration; known: H100, H200"),
        ({"topology": [topology("Pack", level="row")]}, "topology level row is not in the operator's configuration"),
        ({"nodes": ["n7"]}, "placement.nodes names n7, which the cluster does not have"),
        ({"nodes": ["n1"], "excludeNodes": ["n1"]}, "1 excluded by placement.excludeNodes (n1)"),
    ],
)
def test_what_can_never_be_is_hopeless(fields: dict[str, Any], words: str) -> None:
    wishes = PlacementSpec.model_validate(fields)
    named, excluded = frozenset(wishes.nodes), frozenset(wishes.exclude_nodes)
    requirement = Requirement(resources={}, named=named, excluded=excluded)
    result = refused(place(cluster([node("n1"), node("n2")]), requirement, 1, wishes))
    assert result.hopeless
    assert words in result.message


def among(*names: str) -> tuple[Requirement, PlacementSpec]:
    return Requirement(resources={GPU: 8}, named=frozenset(names)), placement(nodes=names)


def test_the_gang_is_chosen_from_the_named_nodes() -> None:
    requirement, wishes = among("r1-2", "r2-1", "r2-2")
    world = cluster(racks(r1=3, r2=3))
    assert set(placed(place(world, requirement, 2, wishes))) <= {"r1-2", "r2-1", "r2-2"}
    assert placed(place(world, requirement, 3, wishes)) == ("r1-2", "r2-1", "r2-2")
    assert placed(place(world, requirement, 3, wishes, kept=("r2-1", "r2-2"))) == ("r1-2", "r2-1", "r2-2")


def test_named_nodes_that_are_booked_are_waited_for() -> None:
    requirement, wishes = among("r1-0", "r1-1")
    result = refused(place(cluster(racks(r1=3), booked=["r1-1"]), requirement, 2, wishes))
    assert not result.hopeless
    assert "1 booked by runs" in result.message
    assert "1 not among placement.nodes (r1-2)" in result.message


def test_a_replacement_joins_the_racks_of_the_survivors() -> None:
    kept = ["r2-0", "r2-1", "gone"]
    world = cluster(racks(r1=3, r2=3), booked=kept)
    nodes = placed(place(world, EIGHT_GPUS, 4, placement(), kept=kept))
    assert set(nodes) - set(kept) == {"r2-2"}


def test_gpus_left_open_mean_equal_gpu_nodes() -> None:
    open_gpus = Requirement(resources={}, gpus=OPEN_GPUS)
    four = {"cpu": 192_000, "memory": 2**41, GPU: 4}
    none = {"cpu": 192_000, "memory": 2**41}
    nodes = [node("a"), node("b"), *(node(f"c{i}", allocatable=four) for i in range(3)), node("d", allocatable=none)]
    assert placed(place(cluster(nodes), open_gpus, 2, placement())) == ("a", "b")
    assert placed(place(cluster(nodes), open_gpus, 3, placement())) == ("c0", "c1", "c2")
    assert placed(place(cluster(nodes), open_gpus, 5, placement())) == ("a", "b", "c0", "c1", "c2")
    assert "1 without GPUs (d)" in refused(place(cluster(nodes), open_gpus, 6, placement())).message
    assert placed(place(cluster([nodes[-1]]), open_gpus, 1, placement())) == ("d",)


def test_the_message_counts_what_lacks_and_names_the_few() -> None:
    four = {"cpu": 192_000, "memory": 2**41, GPU: 4}
    nodes = [
        *racks(r1=7),
        node("gpu-3", unschedulable=True),
        node("x1", allocatable=four),
        node("x2", allocatable=four),
    ]
    result = refused(place(cluster(nodes, booked=[f"r1-{i}" for i in range(5)]), EIGHT_GPUS, 4, placement()))
    assert result.message == (
        "needs 4 nodes, 2 fit: 5 booked by runs, 1 cordoned (gpu-3), "
        "2 short of nvidia.com/gpu (x1, x2: it has 4, 8 asked)"
    )
    assert not result.hopeless


@st.composite
def small_worlds(draw: st.DrawFn) -> tuple[list[NodeView], list[str], int, dict[str, Any]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    nodes = racks(**{f"r{number}": size for number, size in enumerate(sizes)})
    booked = draw(st.lists(st.sampled_from([view.name for view in nodes]), unique=True))
    count = draw(st.integers(1, len(nodes)))
    policy = draw(st.sampled_from(["Any", "Pack", "Contiguous", "Spread"]))
    most = draw(st.integers(1, 3)) if policy == "Spread" else draw(st.none() | st.integers(1, 3))
    return nodes, booked, count, topology(policy, most=most)


def _satisfies(names: Sequence[str], rule: dict[str, Any]) -> bool:
    used = sorted({int(rack[1:]) for rack in racks_of(names)})
    if any(racks_of(names).count(f"r{rack}") > rule.get("maxNodes", 99) for rack in used):
        return False
    return rule["policy"] != "Contiguous" or used == list(range(used[0], used[-1] + 1))


@given(small_worlds())
def test_a_gang_is_placed_exactly_when_some_set_of_free_nodes_satisfies_the_rule(
    world: tuple[list[NodeView], list[str], int, dict[str, Any]],
) -> None:
    nodes, booked, count, rule = world
    result = place(cluster(nodes, booked), EIGHT_GPUS, count, placement(rule))
    free = [view.name for view in nodes if view.name not in booked]
    possible = [chosen for chosen in combinations(free, count) if _satisfies(chosen, rule)]
    everything = [chosen for chosen in combinations([v.name for v in nodes], count) if _satisfies(chosen, rule)]
    fewest_ever = min((len(set(racks_of(chosen))) for chosen in everything), default=0)
    if rule["policy"] == "Pack":
        possible = [chosen for chosen in possible if len(set(racks_of(chosen))) == fewest_ever]
    if isinstance(result, Placed):
        assert tuple(sorted(result.nodes)) in {tuple(sorted(chosen)) for chosen in possible}
        in_racks = racks_of(result.nodes)
        assert in_racks == sorted(in_racks)
    else:
        assert not possible
        assert result.hopeless == (not everything)


@given(small_worlds(), st.randoms())
def test_placement_does_not_depend_on_the_order_nodes_are_listed_in(
    world: tuple[list[NodeView], list[str], int, dict[str, Any]], random: Any
) -> None:
    nodes, booked, count, rule = world
    shuffled = list(nodes)
    random.shuffle(shuffled)
    wishes = placement(rule)
    assert place(cluster(nodes, booked), EIGHT_GPUS, count, wishes) == place(
        cluster(shuffled, booked), EIGHT_GPUS, count, wishes
    )


AMD, IN_PARTS = "amd.com/gpu", "nvidia.com/mig-1g.10gb"
FREE = {"cpu": 192_000, "memory": 2**41}
PRESENT = {"nvidia.com/gpu.present": "true"}
OPEN = Requirement(resources={}, gpus=OPEN_GPUS)
EIGHT_OF_ANY = Requirement(resources={}, gpus=GpuRequest(8, OPEN_GPUS.resources))


def with_gpus(name: str, number: int, resource: str = GPU, **changes: Any) -> NodeView:
    return node(name, allocatable=FREE | ({resource: number} if number else {}), **changes)


def away(name: str, number: int = 8, **changes: Any) -> NodeView:
    """A node whose device plugin is away."""
    return node(name, allocatable=FREE | {GPU: 0}, withheld={GPU: number}, **changes)


@pytest.mark.parametrize("requirement", [OPEN, EIGHT_OF_ANY], ids=["all", "eight"])
@pytest.mark.parametrize(
    "views",
    [
        [away("d")],
        [away("d", 0)],  # nobody knows how many it has
        [with_gpus("d", 0, labels=PRESENT)],
        [with_gpus("c", 4), away("d")],  # what is away may be as large as the others
        [with_gpus("c", 4), with_gpus("d", 0, labels=PRESENT)],
        [away("d"), with_gpus("e", 0)],
    ],
    ids=["told by its capacity", "by zeros", "by a label", "a smaller one", "a smaller one, by a label", "and CPUs"],
)
def test_nodes_whose_gpus_are_away_are_waited_for_and_named(views: list[NodeView], requirement: Requirement) -> None:
    result = refused(place(cluster([node("a"), node("b"), node("b2"), *views]), requirement, 4, placement()))
    assert not result.hopeless
    assert "1 offering no nvidia.com/gpu now (d: its device plugin or driver is away)" in result.message
    assert "the cluster has no more" not in result.message


def test_a_gang_that_needs_no_node_whose_gpus_are_away_does_not_wait_for_it() -> None:
    world = cluster([node("a"), node("b"), away("d"), with_gpus("e", 0, labels=PRESENT)])
    assert placed(place(world, OPEN, 2, placement())) == ("a", "b")


def test_where_all_gpus_are_away_no_gang_gets_nodes_without() -> None:
    nodes = [*(away(f"gpu-{number}") for number in range(10)), with_gpus("cpu", 0)]
    result = refused(place(cluster(nodes), OPEN, 2, placement()))
    assert not result.hopeless
    assert result.message.startswith("needs 2 nodes, 0 fit: 10 offering no nvidia.com/gpu now (gpu-0, gpu-1, gpu-2, ")
    assert "gpu-7, …" in result.message
    assert "1 without GPUs (cpu)" in result.message
    for spec in (NO_GPUS, GpuRequest(0, OPEN_GPUS.resources)):
        assert placed(place(cluster(nodes), Requirement(resources={}, gpus=spec), 11, placement()))


def test_nodes_with_gpus_that_others_use_are_not_replaced_by_nodes_without() -> None:
    world = cluster([node("a"), with_gpus("cpu", 0)], foreign={"a": {GPU: 1}})
    result = refused(place(world, OPEN, 1, placement()))
    assert "1 short of nvidia.com/gpu (a: DaemonSets and other pods leave 7 of 8)" in result.message
    assert "1 without GPUs (cpu)" in result.message


def test_a_node_that_is_known_to_have_fewer_gpus_is_not_waited_for() -> None:
    result = refused(place(cluster([node("a"), away("b", 4)]), EIGHT_OF_ANY, 2, placement()))
    assert result.hopeless
    assert "1 short of nvidia.com/gpu (b: it has 4, 8 asked)" in result.message


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        (OPEN_GPUS, ("n1", "n2")),
        (GpuRequest(8, OPEN_GPUS.resources), ("n1", "n2")),
        (GpuRequest(None, (AMD,), named=True), ("m1", "m2")),
        (GpuRequest(8, (AMD,), named=True), ("m1", "m2")),
        (GpuRequest(None, (AMD, GPU)), ("m1", "m2")),
    ],
)
def test_a_gang_gets_gpus_of_one_make_the_first_that_there_is_however_busy(
    gpus: GpuRequest, nodes: tuple[str, ...]
) -> None:
    world = cluster([*(with_gpus(name, 8, AMD) for name in ("m1", "m2")), node("n1"), node("n2")])
    requirement = Requirement(resources={}, gpus=gpus)
    assert placed(place(world, requirement, 2, placement())) == nodes
    busy = refused(place(ClusterNodes(world.index, world.index.mask(nodes)), requirement, 2, placement()))
    assert (busy.hopeless, busy.fits) == (False, 0)


def test_a_make_whose_nodes_are_all_away_is_still_the_one() -> None:
    result = refused(place(cluster([with_gpus("m1", 8, AMD), away("n1")]), OPEN, 1, placement()))
    assert not result.hopeless
    assert "1 with other GPUs than nvidia.com/gpu (m1: gpuResource chooses)" in result.message


def test_the_make_is_that_of_the_nodes_which_the_run_may_use() -> None:
    """By its GPU type, its selector, and the taints that it tolerates."""
    nodes = [with_gpus("m1", 8, AMD, labels=H200), node("n1", labels=H100)]
    assert placed(place(cluster(nodes), EIGHT_OF_ANY, 1, placement(gpuTypes=["H200"]))) == ("m1",)
    selecting = replace(EIGHT_OF_ANY, labels=(("gpu", "h200"),))
    assert placed(place(cluster(nodes), selecting, 1, placement())) == ("m1",)
    assert placed(place(cluster(nodes), replace(OPEN, excluded=frozenset({"n1"})), 1, placement())) == ("m1",)
    theirs = [nodes[0], replace(nodes[1], taints=(Taint("team", "NoSchedule", "other"),))]
    assert placed(place(cluster(theirs), EIGHT_OF_ANY, 1, placement())) == ("m1",)


def test_who_names_a_make_that_no_node_has_gets_no_nodes_without() -> None:
    world = cluster([with_gpus("cpu", 0)])
    assert placed(place(world, OPEN, 1, placement())) == ("cpu",)
    named = Requirement(resources={}, gpus=GpuRequest(None, (AMD,), named=True))
    assert "1 without amd.com/gpu (cpu)" in refused(place(world, named, 1, placement())).message


def test_parts_of_gpus_are_not_taken_for_whole_ones_nor_for_none() -> None:
    parted = node("p", allocatable=FREE | {IN_PARTS: 7, GPU: 0}, withheld={GPU: 0}, labels=PRESENT)
    for requirement in (OPEN, EIGHT_OF_ANY):
        result = refused(place(cluster([parted, with_gpus("cpu", 0)]), requirement, 1, placement()))
        assert f"1 with {IN_PARTS} in place of whole GPUs (p: resourcesPerNode may name it)" in result.message
    asked = Requirement(resources={IN_PARTS: 7}, gpus=NO_GPUS)
    assert placed(place(cluster([parted]), asked, 1, placement())) == ("p",)


@pytest.mark.parametrize(("number", "hopeless"), [(8, False), (0, False), (4, True), (None, True)])
def test_other_devices_that_are_away_are_waited_for_too(number: int | None, hopeless: bool) -> None:
    view = node("a", withheld={} if number is None else {"rdma/hca": number})
    result = refused(place(cluster([view]), Requirement(resources={"rdma/hca": 8}), 1, placement()))
    assert result.hopeless is hopeless
    assert ("offering no rdma/hca now" in result.message) is not hopeless


def test_the_graphics_of_a_processor_do_not_stand_for_gpus_that_are_away() -> None:
    """A node has two makes, and offers only the other one at the moment."""
    both = FREE | {GPU: 8, "gpu.intel.com/i915": 1}
    nodes = [node("a", allocatable=both), node("b", allocatable=both | {GPU: 0}, withheld={GPU: 8})]
    assert placed(place(cluster(nodes), OPEN, 1, placement())) == ("a",)
    assert "1 offering no nvidia.com/gpu now (b: " in refused(place(cluster(nodes), OPEN, 2, placement())).message
