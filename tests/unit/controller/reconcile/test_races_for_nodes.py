"""Races for one node, each as it happens: writes whose answer nobody has yet, and pods that outlive their runs.

As in ``test_bookings_of_the_operator``, which plays at random, through the operator's real write path.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, UnreachableError
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.tunables import Tunables
from support.shaky_api import PATIENCE, SETTLES, Api, Fate, Json, Link, Operator, has_ended
from support.values import not_none


class Scene:
    """A few nodes, one operator that hears of everything at once, and what the API server holds."""

    def __init__(self, nodes: int) -> None:
        self.api = Api([f"n{number}" for number in range(nodes)])
        self.api.classes = {"low": 10, "high": 1000}
        self.api.queue("default", preemption={"withinQueue": "LowerPriority", "minRuntime": "0s"})
        self.operator = Operator(self.api, Tunables())

    async def arrive(self, name: str, nodes: int = 1, fate: Fate = Fate.DONE, **fields: Any) -> None:
        """A run comes; ``fate`` is that of the decision about it."""
        if fate is not Fate.DONE:
            self.api.fates_of_decisions.append(fate)
        spec = {"queue": "default", "worker": "Disabled", "image": "i", "command": ["train"]}
        self.api.apply(name, nodes=nodes, **spec, **fields)
        await self.hear()

    async def hear(self, seconds: float = 0.05) -> None:
        """Everything is heard of, and so much time passes."""
        for kind in self.api.changes:
            self.operator.hear(kind)
        await self.api.clock.advance(seconds)
        for error in self.operator.failures:
            raise error

    async def live(self) -> None:
        """Pods start, or end that are deleted."""
        for _ in range(3):
            self.api.kubelets()
            await self.hear()

    def nodes(self, name: str) -> tuple[str, ...]:
        """Those that the API server holds for a run."""
        return self.api.view(name).status.assignment.nodes

    def on(self, node: str) -> set[str]:
        """Runs with a pod there that has not ended."""
        pods = self.api.pods.values()
        on_it = [pod for pod in pods if pod["spec"].get("nodeName") == node and not has_ended(pod)]
        return {pod["metadata"]["name"].split("-")[0] for pod in on_it}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene(3)
    yield scene
    await scene.operator.die()


async def a_gang_loses_a_node_while_an_admission_has_no_answer(scene: Scene) -> None:
    """``old`` has lost n1; ``new`` may have n2, the only node that is left."""
    await scene.arrive("old", 2)
    await scene.live()
    assert scene.nodes("old") == ("n0", "n1")
    await scene.arrive("new", fate=Fate.SLOW)
    await scene.hear(PATIENCE + 1)  # nobody waits for the answer any more, and nothing is taken for written
    scene.api.lose_node("n1")
    await scene.hear()
    await scene.live()
    assert scene.nodes("new") == ()
    assert scene.nodes("old") == ("n0", "")


async def test_a_gang_that_lost_a_node_is_not_given_one_that_an_admission_without_an_answer_may_have_given_away(
    scene: Scene,
) -> None:
    await a_gang_loses_a_node_while_an_admission_has_no_answer(scene)
    scene.api.arrive(0, answered=False)
    await scene.hear(SETTLES)
    assert (scene.nodes("new"), scene.nodes("old")) == (("n2",), ("n0", ""))


async def test_it_is_given_the_node_once_a_late_read_shows_that_nobody_has_it(scene: Scene) -> None:
    await a_gang_loses_a_node_while_an_admission_has_no_answer(scene)
    await scene.hear(SETTLES - PATIENCE - 2)
    assert scene.nodes("old") == ("n0", "")
    scene.api.drop_late(all_of_them=True)
    await scene.hear(2)
    assert (scene.nodes("new"), scene.nodes("old")) == ((), ("n0", "n2"))


async def test_nodes_of_a_run_that_has_ended_are_nobody_elses_while_its_pods_are_there(scene: Scene) -> None:
    await scene.arrive("old", 2)
    await scene.live()
    scene.api.apply("old", cancel=True)
    await scene.hear(Tunables().deadlines.stop + 1)  # no longer is anybody waited for
    assert is_true(scene.api.view("old").status, "Finished")
    assert scene.on("n0") == {"old"}
    await scene.arrive("new", 3)
    assert scene.nodes("new") == ()
    await scene.live()
    assert scene.nodes("new")


async def test_nodes_of_a_run_that_is_gone_are_nobody_elses_while_its_pods_are_there(scene: Scene) -> None:
    await scene.arrive("old", 2)
    await scene.live()
    scene.api.delete("old")
    await scene.hear()
    await scene.arrive("new", 3)
    assert scene.nodes("new") == ()
    assert scene.on("n0") == {"old"}
    await scene.live()
    assert scene.nodes("new")


async def test_a_gang_that_lost_a_node_is_not_given_one_where_a_pod_of_a_run_that_is_gone_still_runs(
    scene: Scene,
) -> None:
    await scene.arrive("old", 2)
    await scene.live()
    await scene.arrive("other")
    await scene.live()
    assert scene.on("n2") == {"other"}
    scene.api.delete("other")
    scene.api.lose_node("n1")
    await scene.hear()
    assert scene.nodes("old") == ("n0", "")
    assert scene.on("n2") == {"other"}
    await scene.live()
    assert scene.nodes("old") == ("n0", "n2")


async def test_a_successor_leaves_nodes_alone_where_pods_are_of_which_it_knows_no_run(scene: Scene) -> None:
    await scene.arrive("old", 3)
    await scene.live()
    await scene.operator.die()
    scene.api.delete("old")
    scene.operator = Operator(scene.api, Tunables())
    await scene.arrive("new", 3)
    assert scene.on("n0") == {"old"}
    assert scene.nodes("new") == ()
    await scene.live()
    assert scene.nodes("new")


LOW, HIGH = {"priorityClassName": "low"}, {"priorityClassName": "high"}


async def somebody_is_told_to_make_room_with_a_notice_that_is_on_its_way(scene: Scene) -> None:
    """``old`` is to leave n0 and n1 to ``urgent``, and has not heard of it."""
    scene.api.bring_node("n3")
    await scene.arrive("old", 2, **LOW)
    await scene.arrive("other", 2, **HIGH)
    await scene.live()
    scene.api.fates_of_decisions.extend([Fate.DONE, Fate.SLOW])  # the reservation, and the notice
    await scene.arrive("urgent", 2, **HIGH)
    kept = scene.api.view("urgent").status.reservation
    assert kept is not None
    assert kept.victims == ("uid-old",)
    await scene.hear(PATIENCE + 1)
    assert len(scene.api.on_their_way) == 1
    assert scene.api.view("old").status.preemption is None


async def the_notice_lands(scene: Scene) -> None:
    scene.api.arrive(0, answered=False)
    assert scene.api.view("old").status.preemption is not None
    await scene.hear()


async def trains_on(scene: Scene) -> None:
    """``old`` has lost nothing, and the notice is withdrawn."""
    await scene.hear(SETTLES)
    await scene.live()
    status = scene.api.view("old").status
    assert (status.preemption, status.stop) == (None, None)
    assert (status.attempt, status.assignment.nodes) == (1, ("n0", "n1"))
    assert (scene.on("n0"), scene.on("n1")) == ({"old"}, {"old"})


async def test_a_notice_that_lands_once_its_run_has_started_elsewhere_stops_nobody(scene: Scene) -> None:
    await somebody_is_told_to_make_room_with_a_notice_that_is_on_its_way(scene)
    scene.api.end_pods("other")
    await scene.hear()
    assert scene.nodes("urgent") == ("n2", "n3")
    await the_notice_lands(scene)
    await trains_on(scene)


async def test_a_notice_that_lands_while_its_run_may_have_started_elsewhere_stops_nobody(scene: Scene) -> None:
    await somebody_is_told_to_make_room_with_a_notice_that_is_on_its_way(scene)
    scene.api.fates_of_decisions.append(Fate.UNANSWERED)
    scene.api.end_pods("other")
    await scene.hear(1)
    assert scene.nodes("urgent") == ("n2", "n3")
    await the_notice_lands(scene)
    await trains_on(scene)


@pytest.mark.parametrize("gone", [False, True])
async def test_a_notice_that_lands_once_its_run_is_given_up_stops_nobody(scene: Scene, gone: bool) -> None:
    await somebody_is_told_to_make_room_with_a_notice_that_is_on_its_way(scene)
    if gone:
        scene.api.delete("urgent")
    else:
        scene.api.apply("urgent", cancel=True)
    await scene.hear()
    await the_notice_lands(scene)
    await trains_on(scene)


async def test_a_notice_that_lands_as_another_operator_begins_stops_nobody_for_a_run_that_is_given_up(
    scene: Scene,
) -> None:
    await somebody_is_told_to_make_room_with_a_notice_that_is_on_its_way(scene)
    scene.api.delete("urgent")
    await scene.operator.die()
    scene.api.arrive(0, answered=False)
    assert scene.api.view("old").status.preemption is not None
    scene.operator = Operator(scene.api, Tunables())
    await trains_on(scene)


async def test_a_notice_that_lands_late_is_heeded_while_its_run_waits_for_it(scene: Scene) -> None:
    await somebody_is_told_to_make_room_with_a_notice_that_is_on_its_way(scene)
    await the_notice_lands(scene)
    await scene.hear(SETTLES)
    await scene.live()
    await scene.live()
    assert scene.nodes("urgent") == ("n0", "n1")
    assert scene.api.view("old").status.admission.requeued_for == "Preempted"


async def after_a_change_of_leader(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, found: Json | ApiError, pods: bool = True
) -> None:
    """The nodes of ``old``, n0 and n1, lie in a ConfigMap of which the next leader finds ``found``."""
    monkeypatch.setattr(slots, "INLINE_LIMIT", 1)
    await scene.arrive("old", 2)
    await scene.live()
    assert scene.nodes("old") == ()  # status only names them
    if not pods:
        scene.api.pods.clear()
    await scene.operator.die()
    [name] = scene.api.maps
    if isinstance(found, ApiError):
        monkeypatch.setattr(Link, "get", refused_for(name, found))
    else:
        scene.api.maps[name] |= found
    scene.operator = Operator(scene.api, Tunables())
    await scene.arrive("new", 1)


def refused_for(name: str, error: ApiError) -> Any:
    get = Link.get

    async def answer(self: Link, resource: Resource, asked: str, namespace: str = "") -> bytes:
        if asked == name:
            raise error
        return await get(self, resource, asked, namespace)

    return answer


FORBIDDEN = ApiError(403, "Forbidden", "configmaps is forbidden in this namespace")


@pytest.mark.parametrize(
    "found",
    [
        {"data": {"assignment.json": "[" * 200_000}},
        {"data": {"assignment.json": '{"nodes": 7}'}},
        {"data": ["assignment.json"]},
        {"data": {"assignment.json": "\ud800"}},
        FORBIDDEN,
        ApiError(500, "InternalError", "cannot be decrypted"),
    ],
)
async def test_a_config_map_that_somebody_replaced_or_nobody_may_read_costs_only_its_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, found: Json | ApiError
) -> None:
    await after_a_change_of_leader(scene, monkeypatch, found=found)
    await scene.hear(1)
    await scene.live()
    assert scene.on("n2") == {"new"}
    assert scene.on("n0") == scene.on("n1") == {"old"}


async def test_nodes_that_no_pod_tells_of_are_given_to_nobody_before_the_run_had_its_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await after_a_change_of_leader(scene, monkeypatch, found=FORBIDDEN, pods=False)
    await scene.hear(20)
    assert scene.api.view("new").status.assignment.config_map == ""
    await scene.hear(120)
    await scene.live()
    assert scene.api.view("new").status.assignment.config_map


@pytest.mark.slow
@pytest.mark.parametrize("found", [FORBIDDEN, ApiError(500, "InternalError", "cannot be decrypted")])
@pytest.mark.parametrize("order", ["cancel", "suspend"])
async def test_a_run_whose_nodes_nobody_gives_is_told_so_and_obeys_who_stops_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: ApiError, order: str
) -> None:
    with monkeypatch.context() as while_it_is_so:
        while_it_is_so.setattr(slots, "INLINE_LIMIT", 1)
        await after_a_change_of_leader(scene, while_it_is_so, found=found)
        before = scene.api.view("old").status
        await scene.hear(20)
        assert not is_true(scene.api.view("old").status, "Undecidable"), "it may be of the moment"
        await scene.hear(300)
        status = scene.api.view("old").status
        told = not_none(find(status, "Undecidable"))
        assert (told.status, told.reason) == ("True", "NodesUnknown")
        assert f"{before.assignment.config_map}, which has its nodes, cannot be read ({found.message})" in told.message
        caplog.clear()
        await scene.hear(600)
        assert (caplog.records, scene.api.view("old").status) == ([], status), "once"
        assert scene.on("n0") == scene.on("n1") == {"old"}
        scene.api.apply("old", **{order: True})
        await scene.hear(1)
        assert scene.api.view("old").status.assignment == before.assignment, "what is not known is not written"
        for _ in range(6):
            await scene.live()
            await scene.hear(60)
        assert scene.on("n0") | scene.on("n1") == set()
        assert is_true(scene.api.view("old").status, "Finished") is (order == "cancel")
    if order == "suspend":
        assert scene.api.view("old").status.assignment == before.assignment
        await scene.hear(60)
        status = scene.api.view("old").status
        assert (status.state, status.assignment.config_map) == ("Suspended", "")
        assert status.assignment.incarnations == (1, 1), "none is used twice"
        assert find(status, "Undecidable") is None


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(403, "Forbidden", "a webhook denied the request"),
        UnknownOutcome("delete: 500 InternalError: a webhook failed", 0.0),
        UnreachableError("not sent, as other writes of the namespace take too long"),
    ],
)
async def test_pods_that_nobody_lets_us_delete_hold_up_no_new_run_of_that_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: KubeError
) -> None:
    await scene.arrive("old")
    await scene.live()
    asked: list[str] = []

    async def refuse(_: Link, resource: Resource, name: str, namespace: str = "", **__: Any) -> bytes | None:
        asked.append(name)
        raise refusal

    with monkeypatch.context() as while_it_is_so:
        while_it_is_so.setattr(Link, "delete", refuse)
        scene.api.delete("old")
        await scene.hear(1)
        scene.api.apply("old", queue="default", worker="Disabled", image="i", command=["train"], nodes=1)
        scene.api.runs["old"]["metadata"]["uid"] = "another"
        await scene.hear(10)
        assert scene.nodes("old") == ("n1",)
        assert scene.on("n0") == {"old"}, "it is there still, and has its node"
        tried = len(asked)
        await scene.hear(5)
        assert (len(asked), len(caplog.records)) == (tried, 1), "not at every look"
    await scene.hear(60)
    [pod] = [pod for name, pod in scene.api.pods.items() if name in asked]
    assert pod["metadata"]["deletionTimestamp"]
