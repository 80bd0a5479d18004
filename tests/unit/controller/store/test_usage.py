"""The leader's book of usage: read once it leads, written now and then, and never in the way of admission."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.names import ANNOTATION_TEST_ONLY, ANNOTATION_USER
from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.store.usage import CONFIG_MAP, UsageKeeper
from lockstep.core.model.snapshot import RunView
from support.admission import ACCEPTED, FINISHED, held, run, world

DAY = 86_400.0
ENDED = {"conditions": (ACCEPTED, FINISHED)}


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time


class Kube:
    """Holds one ConfigMap. A fake: what is tested is what is asked of it."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.down = False

    async def get(self, resource: object, name: str, namespace: str) -> bytes:
        self._answer()
        if self.stored is None:
            raise ApiError(404, "NotFound", f'configmaps "{name}" not found')
        return json.dumps(self.stored).encode()

    async def create(self, resource: object, body: Mapping[str, Any], namespace: str) -> bytes:
        self._answer()
        return self._store(body)

    async def replace(self, resource: object, name: str, body: Mapping[str, Any], namespace: str) -> bytes:
        self._answer()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", "changed")
        return self._store(body)

    def _answer(self) -> None:
        if self.down:
            raise UnreachableError("down")

    def _store(self, body: Mapping[str, Any]) -> bytes:
        self.version += 1
        self.stored = json.loads(json.dumps(body))
        assert self.stored is not None
        self.stored["metadata"]["resourceVersion"] = str(self.version)
        return json.dumps(self.stored).encode()


class Leader:
    """A keeper, and passes on a cluster in which run a holds two nodes of queue q."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self.keeper = UsageKeeper(kube, clock, "lockstep-system")  # type: ignore[arg-type]
        runs = [run("a", 2, queue="q", status=held("n0", "n1")), run("b", queue="other")]
        self.snapshot = world(runs, queues={"q": {}, "other": {}})

    def look(self) -> Mapping[tuple[str, str, str], float]:
        asyncio.run(self.keeper.settle())
        return self.keeper.counted(self.snapshot, 7 * DAY).fair_shares


@pytest.fixture
def kube() -> Kube:
    return Kube()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_holds_nodes_loses_of_its_share_as_time_goes_by(kube: Kube, clock: Clock) -> None:
    leader = Leader(kube, clock)
    assert leader.look()["q", "team", ""] == 1.0
    clock.time += 3600
    found = leader.look()
    assert found["q", "team", ""] < found["other", "team", ""] < 1.0


def test_who_only_asks_is_given_the_share_that_a_run_would_have_and_takes_none(kube: Kube, clock: Clock) -> None:
    leader = Leader(kube, clock)
    leader.look()
    clock.time += 3600
    others = leader.look()
    asked = replace(run("c", queue="q"), annotations={ANNOTATION_TEST_ONLY: "true", ANNOTATION_USER: "carol"})
    leader.snapshot = replace(leader.snapshot, runs=(*leader.snapshot.runs, asked))
    found = leader.look()
    assert found["q", "team", "carol"] < 1.0
    assert {key: found[key] for key in others} == pytest.approx(dict(others), rel=0.01)
    real = replace(asked, annotations={ANNOTATION_USER: "carol"})
    leader.snapshot = replace(leader.snapshot, runs=(*leader.snapshot.runs[:-1], real))
    now_others = leader.look()
    assert now_others["q", "team", ""] != pytest.approx(others["q", "team", ""], rel=0.01)
    assert now_others["q", "team", "carol"] == pytest.approx(found["q", "team", "carol"], rel=0.01)


@pytest.mark.parametrize(
    "idle",
    [
        [run(f"x{number}", queue=f"no-such-{number}") for number in range(100)],
        [replace(run(f"x{number}", queue="q"), namespace=f"left-out-{number}") for number in range(100)],
        [run(f"x{number}", queue="closed") for number in range(100)],
        [replace(run(f"x{number}", queue="q", status=ENDED), namespace=f"in-{number}") for number in range(100)],
    ],
    ids=["queues that do not exist", "namespaces that the queue leaves out", "one left out of the queue", "finished"],
)
def test_runs_that_can_never_start_take_no_share_of_anybody(kube: Kube, clock: Clock, idle: list[RunView]) -> None:
    found = []
    for runs in ([], idle):
        leader = Leader(kube, clock)
        chosen = {"namespaceSelector": {"matchLabels": {"may": "train"}}}
        labels = {name: {"may": "train"} for name in ["team", *(f"in-{number}" for number in range(100))]}
        closed = {"namespaceSelector": {"matchLabels": {"may": "never"}}}
        queues = world([], queues={"q": chosen, "other": chosen, "closed": closed}).queues
        leader.snapshot = replace(
            leader.snapshot, runs=(*leader.snapshot.runs, *runs), queues=queues, namespace_labels=labels
        )
        leader.look()
        clock.time += 3600
        shares = leader.look()
        found.append((shares["q", "team", ""], shares["other", "team", ""]))
        kube.stored = None
    assert found[0] == pytest.approx(found[1], rel=0.001)


def test_the_next_leader_goes_on_from_what_was_written(kube: Kube, clock: Clock) -> None:
    leader = Leader(kube, clock)
    for _ in range(3):
        leader.look()
        clock.time += 3600
    leader.look()
    before = leader.look()["q", "team", ""]
    assert kube.stored is not None
    assert kube.stored["metadata"]["name"] == CONFIG_MAP
    following = Leader(kube, clock)
    assert following.look()["q", "team", ""] == pytest.approx(before, rel=0.05)


def test_a_queue_whose_hours_are_all_a_day_old_has_none_and_one_not_read_of_is_not_known(
    kube: Kube, clock: Clock
) -> None:
    leader = Leader(kube, clock)
    leader.snapshot = replace(leader.snapshot, queues=world([], queues={"q": {}}).queues)
    kube.down = True
    for _ in range(3):  # what is counted meanwhile is not all there is
        leader.look()
        clock.time += 3600
    assert not leader.keeper.is_read
    assert leader.keeper.counted(leader.snapshot, 7 * DAY).gpu_hours == {}
    kube.down = False
    leader.look()
    assert leader.keeper.is_read
    assert leader.keeper.counted(leader.snapshot, 7 * DAY).gpu_hours == {"q": 0}


def test_it_is_written_once_a_minute_at_most(kube: Kube, clock: Clock) -> None:
    leader = Leader(kube, clock)
    for _ in range(20):
        leader.look()
        clock.time += 10
    assert 1 <= kube.version <= 4


def test_an_api_server_that_is_down_holds_up_nothing(kube: Kube, clock: Clock) -> None:
    kube.down = True
    leader = Leader(kube, clock)
    leader.look()
    clock.time += 3600
    assert leader.look()["q", "team", ""] < 1.0
    kube.down = False
    clock.time += 120
    leader.look()
    clock.time += 120
    leader.look()
    assert kube.version >= 1


@pytest.mark.parametrize("data", [{}, {"usage.json": "no"}, {"usage.json": "{}"}])
def test_a_book_that_cannot_be_read_is_begun_anew(kube: Kube, clock: Clock, data: dict[str, str]) -> None:
    kube.stored, kube.version = {"metadata": {"resourceVersion": "1"}, "data": data}, 1
    leader = Leader(kube, clock)
    leader.look()
    clock.time += 120
    leader.look()
    assert kube.version == 2


def test_a_book_that_somebody_else_wrote_meanwhile_is_read_again(kube: Kube, clock: Clock) -> None:
    leader = Leader(kube, clock)
    for _ in range(2):
        leader.look()
        clock.time += 120
    kube.version += 1
    assert kube.stored is not None
    kube.stored["metadata"]["resourceVersion"] = str(kube.version)
    for _ in range(4):
        leader.look()
        assert leader.keeper.is_read, "no pass goes without"
        clock.time += 120
    assert kube.stored["metadata"]["resourceVersion"] == str(kube.version)
    assert kube.version > 3
