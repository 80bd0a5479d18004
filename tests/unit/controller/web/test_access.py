"""Who may look at the web page, and what of it: the cluster's own tokens and rights, asked for sparingly."""

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.controller.kube.errors import ApiError
from lockstep.controller.web import access, strangers
from lockstep.controller.web.access import Door, Viewer
from lockstep.controller.web.strangers import TooManyStrangersError
from lockstep.controller.workers.trust import ReviewUnavailableError, UnauthenticatedError
from support.manual_clock import ManualClock
from support.web_api import Reviewer

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"


class Gate:
    """A door with users behind it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reviewer = Reviewer()
        self.reviewer.admit("t-ada", "ada", "*", "nodes", "queues")
        self.reviewer.admit("t-tim", "tim", "research")
        self.door = Door(self.reviewer.post, self.clock)
        self.numbers = itertools.count()

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
        assert (await gate.door.viewer("t-tim", HERE)).name == "tim"
    assert gate.tokens_asked == 1
    await gate.clock.advance(access.GRANTED_SECONDS + 1)
    await gate.door.viewer("t-tim", HERE)
    assert gate.tokens_asked == 2


async def test_a_token_that_was_revoked_opens_nothing_after_a_minute(gate: Gate) -> None:
    await gate.door.viewer("t-tim", HERE)
    del gate.reviewer.users["t-tim"]
    await gate.clock.advance(access.GRANTED_SECONDS + 1)
    with pytest.raises(UnauthenticatedError, match="does not accept"):
        await gate.door.viewer("t-tim", HERE)


async def test_who_was_signed_in_with_a_token_that_was_revoked_is_a_stranger_again(gate: Gate) -> None:
    await gate.door.viewer("t-tim", HERE)
    del gate.reviewer.users["t-tim"]
    await gate.clock.advance(access.GRANTED_SECONDS + 1)
    with pytest.raises(UnauthenticatedError):
        await gate.door.viewer("t-tim", HERE)
    await gate.clock.advance(access.REFUSED_SECONDS)
    await junk(gate, 500)
    with pytest.raises(TooManyStrangersError):
        await gate.door.viewer("t-tim", HERE)


async def test_many_tabs_that_open_at_once_are_one_review(gate: Gate) -> None:
    await asyncio.gather(*(gate.door.viewer("t-tim", HERE) for _ in range(30)))
    assert gate.tokens_asked == 1


async def test_a_refused_token_is_not_asked_about_again_for_a_while(gate: Gate) -> None:
    for _ in range(5):
        with pytest.raises(UnauthenticatedError):
            await gate.door.viewer("forged", HERE)
    assert gate.tokens_asked == 1
    await gate.clock.advance(access.REFUSED_SECONDS)
    with pytest.raises(UnauthenticatedError):
        await gate.door.viewer("forged", HERE)
    assert gate.tokens_asked == 2


@pytest.mark.parametrize("token", ["", "x" * 8000, "two words", "line\nbreak", "naïve", "nul\0"])
async def test_what_can_be_no_token_costs_the_api_server_nothing(gate: Gate, token: str) -> None:
    with pytest.raises(UnauthenticatedError):
        await gate.door.viewer(token, HERE)
    assert gate.reviewer.asked == []


async def junk(gate: Gate, tokens: int, address: str = HERE) -> int:
    """So many tokens that nobody knows, all different; how many were turned away without a look."""
    turned_away = 0
    for _ in range(tokens):
        try:
            await gate.door.viewer(f"forged-{next(gate.numbers)}", address)
        except UnauthenticatedError:
            continue
        except TooManyStrangersError as error:
            turned_away += error.seconds > 0
    return turned_away


async def test_strangers_spend_little_of_the_api_servers_time_and_shut_nobody_out(gate: Gate) -> None:
    await gate.door.viewer("t-tim", HERE)
    await gate.clock.advance(access.GRANTED_SECONDS + 1)  # his next review is due
    assert await junk(gate, 500) >= 440
    assert (await gate.door.viewer("t-tim", HERE)).name == "tim"


async def test_junk_of_one_address_does_not_shut_out_the_first_sign_in_of_another(gate: Gate) -> None:
    assert await junk(gate, 500) > 0
    assert (await gate.door.viewer("t-tim", ELSEWHERE)).name == "tim"


async def test_junk_of_sixty_addresses_does_not_shut_out_the_first_sign_in_of_another(gate: Gate) -> None:
    for _ in range(30):
        for sender in range(60):
            await junk(gate, 3, f"10.0.0.{sender}")
        await gate.clock.advance(1)
    assert (await gate.door.viewer("t-tim", ELSEWHERE)).name == "tim"


async def test_a_first_sign_in_gets_through_soon_after_junk_of_the_same_address(gate: Gate) -> None:
    await junk(gate, 500)
    with pytest.raises(TooManyStrangersError) as refused:
        await gate.door.viewer("t-tim", HERE)
    assert refused.value.seconds <= 1
    await gate.clock.advance(1)
    assert (await gate.door.viewer("t-tim", HERE)).name == "tim"


async def test_all_readers_behind_one_proxy_are_back_within_a_minute_of_a_restart(gate: Gate) -> None:
    for reader in range(250):
        gate.reviewer.admit(f"t-{reader}", f"reader-{reader}", "research")
    outside = [f"t-{reader}" for reader in range(250)]
    for _ in range(12):  # the page asks again every five seconds
        left = []
        for token in outside:
            try:
                await gate.door.viewer(token, HERE)
            except TooManyStrangersError:
                left.append(token)
        outside = left
        await gate.clock.advance(5)
    assert outside == []


@pytest.mark.slow
async def test_junk_of_any_number_of_addresses_costs_so_many_reviews_at_most(gate: Gate) -> None:
    for second in range(60):
        for sender in range(60):
            await junk(gate, 2, f"10.0.{second}.{sender}")
        await gate.clock.advance(1)
    rate = strangers.ALL_PER_SECOND + strangers.SELDOM_PER_SECOND
    burst = strangers.ALL_BURST + strangers.SELDOM_BURST
    assert 59 * rate <= gate.tokens_asked <= 59 * rate + burst


async def test_junk_takes_the_place_of_nobody_who_is_signed_in(gate: Gate) -> None:
    await gate.door.viewer("t-tim", HERE)
    for sender in range(access.MOST_REFUSED // 5 + 10):
        await junk(gate, 5, f"2001:db8:0:{sender:x}::1")
        await gate.clock.advance(0.25)
    before = gate.tokens_asked
    assert before > access.MOST_REFUSED
    await gate.door.viewer("t-tim", HERE)
    assert gate.tokens_asked == before


async def test_what_is_remembered_of_junk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_REFUSED", 40)
    monkeypatch.setattr(strangers, "MOST_ADDRESSES", 20)
    gate = Gate()
    for sender in range(200):
        await junk(gate, 1, f"10.1.0.{sender}")
        await gate.clock.advance(0.1)
    assert gate.tokens_asked == 200
    assert (len(gate.door._refused), len(gate.door._viewers), len(gate.door._strangers)) == (40, 0, 20)


async def test_who_waits_for_a_review_that_is_under_way_costs_nobody_a_turn(gate: Gate) -> None:
    many = int(strangers.EACH_BURST) + 20
    await asyncio.gather(*(gate.door.viewer("t-tim", HERE) for _ in range(many)))
    assert (await gate.door.viewer("t-ada", HERE)).name == "ada"


async def test_a_slow_api_server_keeps_few_strangers_waiting_and_the_signed_in_wait_behind_none() -> None:
    go, under_way = asyncio.Event(), 0
    reviewer = Reviewer()
    reviewer.admit("t-tim", "tim", "research")

    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal under_way
        if body["spec"].get("token", "").startswith("forged"):
            under_way += 1
            await go.wait()
        return await reviewer.post(path, body)

    door = Door(post, ManualClock())
    viewer = await door.viewer("t-tim", HERE)
    flood = [
        asyncio.create_task(door.viewer(f"forged-{sender}-{number}", f"10.0.0.{sender}"))
        for sender in range(10)
        for number in range(30)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    turned_away = [task for task in flood if task.done()]
    assert len(flood) - len(turned_away) == strangers.MOST_PENDING
    assert all(isinstance(task.exception(), TooManyStrangersError) for task in turned_away)
    assert sum(not task.done() for task in flood[:30]) == strangers.MOST_PENDING_EACH
    assert under_way == strangers.AT_ONCE < access.CONCURRENT_REVIEWS
    assert await door.sees(viewer, "research")
    go.set()
    await asyncio.gather(*flood, return_exceptions=True)
    with pytest.raises(UnauthenticatedError):
        await door.viewer("forged-late", ELSEWHERE)  # there is room again


async def test_while_the_api_server_is_away_nobody_new_is_let_in_and_nothing_is_remembered(gate: Gate) -> None:
    gate.reviewer.down = True
    with pytest.raises(ReviewUnavailableError):
        await gate.door.viewer("t-tim", HERE)
    gate.reviewer.down = False
    viewer = await gate.door.viewer("t-tim", HERE)
    gate.reviewer.down = True
    with pytest.raises(ReviewUnavailableError):
        await gate.door.sees(viewer, "research")
    gate.reviewer.down = False
    assert await gate.door.sees(viewer, "research")


async def test_an_operator_that_may_not_ask_says_what_to_do_about_it() -> None:
    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ApiError(403, "Forbidden", "cannot create resource subjectaccessreviews")

    with pytest.raises(ReviewUnavailableError, match=r"web\.enabled: true"):
        await Door(post, ManualClock()).viewer("token", HERE)


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
        assert (await door.viewer("token", HERE)).name == "eve"
    else:
        with pytest.raises(UnauthenticatedError):
            await door.viewer("token", HERE)


async def test_rights_are_asked_for_the_very_user_that_the_review_named() -> None:
    asked: list[Mapping[str, Any]] = []

    async def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if path == access.TOKEN_REVIEWS:
            user = {"username": "eve", "uid": "7", "groups": ["b", "a"], "extra": {"scopes.example.com": ["view"]}}
            return {"status": {"authenticated": True, "user": user}}
        asked.append(body["spec"])
        return {"status": {"allowed": True, "denied": True}}

    door = Door(post, ManualClock())
    assert not await door.sees(await door.viewer("token", HERE), "research")  # what is denied is not allowed
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
    assert await door.sees(await door.viewer("t-1", HERE), "research")
    assert not await door.sees(await door.viewer("t-2", HERE), "research")


async def test_who_may_read_everything_is_not_asked_about_each_namespace(gate: Gate) -> None:
    sight = await gate.door.sight(await gate.door.viewer("t-ada", HERE), [f"team-{i}" for i in range(100)])
    assert (sight.everywhere, sight.nodes, sight.queues) == (True, True, True)
    assert sight.sees("anything")
    assert gate.rights_asked == 3


async def test_who_may_not_is_asked_about_so_many_namespaces_at_most(gate: Gate) -> None:
    viewer = await gate.door.viewer("t-tim", HERE)
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
    first = asyncio.create_task(door.viewer("t-tim", HERE))
    await arrived.wait()
    second = asyncio.create_task(door.viewer("t-tim", HERE))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert (await second).name == "tim"
