"""Who may look at the web page, and what of it: the cluster's own tokens and rights, asked for sparingly."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.controller.clock import ManualClock
from lockstep.controller.kube_errors import ApiError
from lockstep.controller.trust import ReviewUnavailableError, UnauthenticatedError
from lockstep.web import access
from lockstep.web.access import Door, TooManyStrangersError, Viewer
from support.web_site import Reviewer


class Gate:
    """A door with users behind it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reviewer = Reviewer()
        self.reviewer.admit("t-ada", "ada", "*", "nodes", "queues")
        self.reviewer.admit("t-tim", "tim", "research")
        self.door = Door(self.reviewer.post, self.clock)

    @property
    def tokens_asked(self) -> int:
        """About each token the API server is asked twice: first for the page's own audience."""
        return self.reviewer.reviews("tokenreviews") // 2

    @property
    def rights_asked(self) -> int:
        return self.reviewer.reviews("subjectaccessreviews")


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def test_a_token_is_reviewed_once_a_minute(gate: Gate) -> None:
    for _ in range(5):
        assert (await gate.door.viewer("t-tim")).name == "tim"
    assert gate.tokens_asked == 1
    await gate.clock.advance(access.GRANTED_SECONDS + 1)
    await gate.door.viewer("t-tim")
    assert gate.tokens_asked == 2


async def test_a_token_that_was_revoked_opens_nothing_after_a_minute(gate: Gate) -> None:
    await gate.door.viewer("t-tim")
    del gate.reviewer.users["t-tim"]
    await gate.clock.advance(access.GRANTED_SECONDS + 1)
    with pytest.raises(UnauthenticatedError, match="does not accept"):
        await gate.door.viewer("t-tim")


async def test_many_tabs_that_open_at_once_are_one_review(gate: Gate) -> None:
    await asyncio.gather(*(gate.door.viewer("t-tim") for _ in range(30)))
    assert gate.tokens_asked == 1


async def test_a_refused_token_is_not_asked_about_again_for_a_while(gate: Gate) -> None:
    for _ in range(5):
        with pytest.raises(UnauthenticatedError):
            await gate.door.viewer("forged")
    assert gate.tokens_asked == 1


@pytest.mark.parametrize("token", ["", "x" * 8000, "two words", "line\nbreak", "naïve", "nul\0"])
async def test_what_can_be_no_token_costs_the_api_server_nothing(gate: Gate, token: str) -> None:
    with pytest.raises(UnauthenticatedError):
        await gate.door.viewer(token)
    assert gate.reviewer.asked == []


async def test_strangers_spend_little_of_the_api_servers_time_and_shut_nobody_out(gate: Gate) -> None:
    await gate.door.viewer("t-tim")
    await gate.clock.advance(access.GRANTED_SECONDS + 1)  # his next review is due
    turned_away = 0
    for number in range(500):
        try:
            await gate.door.viewer(f"forged-{number}")
        except UnauthenticatedError:
            continue
        except TooManyStrangersError as error:
            turned_away += error.seconds > 0
    assert turned_away >= 440
    assert (await gate.door.viewer("t-tim")).name == "tim"


async def test_while_the_api_server_is_away_nobody_new_is_let_in_and_nothing_is_remembered(gate: Gate) -> None:
    gate.reviewer.down = True
    with pytest.raises(ReviewUnavailableError):
        await gate.door.viewer("t-tim")
    gate.reviewer.down = False
    viewer = await gate.door.viewer("t-tim")
    gate.reviewer.down = True
    with pytest.raises(ReviewUnavailableError):
        await gate.door.sees(viewer, "research")
    gate.reviewer.down = False
    assert await gate.door.sees(viewer, "research")


async def test_an_operator_that_may_not_ask_says_what_to_do_about_it() -> None:
    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ApiError(403, "Forbidden", "cannot create resource subjectaccessreviews")

    with pytest.raises(ReviewUnavailableError, match=r"web\.enabled: true"):
        await Door(post, ManualClock()).viewer("token")


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ({"authenticated": True, "audiences": ["lockstep-web"], "user": {"username": "eve"}}, True),
        ({"authenticated": True, "user": {"username": "eve"}}, False),  # a server that does not know audiences
        ({"authenticated": True, "audiences": ["lockstep"], "user": {"username": "eve"}}, False),
        ({"authenticated": "yes", "audiences": ["lockstep-web"], "user": {"username": "eve"}}, False),
        ({"authenticated": True, "audiences": ["lockstep-web"], "user": {}}, False),
        ({}, False),
    ],
)
async def test_a_token_for_the_page_counts_only_if_the_server_says_that_it_is_for_the_page(
    status: dict[str, Any], known: bool
) -> None:
    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"status": status if body["spec"].get("audiences") else {"authenticated": False}}

    door = Door(post, ManualClock())
    if known:
        assert (await door.viewer("token")).name == "eve"
    else:
        with pytest.raises(UnauthenticatedError):
            await door.viewer("token")


async def test_rights_are_asked_for_the_very_user_that_the_review_named() -> None:
    asked: list[Mapping[str, Any]] = []

    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if path == access.TOKEN_REVIEWS:
            user = {"username": "eve", "uid": "7", "groups": ["b", "a"], "extra": {"scopes.example.com": ["view"]}}
            return {"status": {"authenticated": True, "user": user}}
        asked.append(body["spec"])
        return {"status": {"allowed": True, "denied": True}}

    door = Door(post, ManualClock())
    assert not await door.sees(await door.viewer("token"), "research")  # what is denied is not allowed
    expected = {"user": "eve", "uid": "7", "groups": ["a", "b"], "extra": {"scopes.example.com": ["view"]}}
    assert {key: asked[0][key] for key in expected} == expected
    attributes = {"group": "lockstep.dev", "resource": "trainingruns", "verb": "get", "namespace": "research"}
    assert asked[0]["resourceAttributes"] == attributes


async def test_users_that_differ_in_a_group_share_no_rights() -> None:
    groups = {"t-1": ["team"], "t-2": []}

    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if path == access.TOKEN_REVIEWS:
            user = {"username": "eve", "groups": groups[body["spec"]["token"]]}
            return {"status": {"authenticated": True, "user": user}}
        return {"status": {"allowed": "team" in body["spec"]["groups"]}}

    door = Door(post, ManualClock())
    assert await door.sees(await door.viewer("t-1"), "research")
    assert not await door.sees(await door.viewer("t-2"), "research")


async def test_who_may_read_everything_is_not_asked_about_each_namespace(gate: Gate) -> None:
    sight = await gate.door.sight(await gate.door.viewer("t-ada"), [f"team-{i}" for i in range(100)])
    assert (sight.everywhere, sight.nodes, sight.queues) == (True, True, True)
    assert sight.sees("anything")
    assert gate.rights_asked == 3


async def test_who_may_not_is_asked_about_so_many_namespaces_at_most(gate: Gate) -> None:
    viewer = await gate.door.viewer("t-tim")
    places = ["research", *(f"team-{i}" for i in range(5000))]
    sight = await gate.door.sight(viewer, places)
    assert sight.namespaces == {"research"}
    assert gate.rights_asked == 3 + access.MOST_NAMESPACES
    await gate.door.sight(viewer, places)
    assert gate.rights_asked == 3 + access.MOST_NAMESPACES


async def test_no_more_than_a_few_reviews_are_under_way_at_once() -> None:
    now, most = 0, 0

    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return {"status": {"allowed": False}}

    door = Door(post, ManualClock())
    await door.sight(Viewer("eve", "k", {"user": "eve"}), [f"team-{i}" for i in range(200)])
    assert 1 < most <= access.CONCURRENT_REVIEWS


async def test_who_hangs_up_takes_the_answer_from_nobody(gate: Gate) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        arrived.set()
        await go.wait()
        return await gate.reviewer.post(path, body)

    door = Door(post, gate.clock)
    first = asyncio.create_task(door.viewer("t-tim"))
    await arrived.wait()
    second = asyncio.create_task(door.viewer("t-tim"))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert (await second).name == "tim"
