"""Whom the worker API takes for whom: a token is good for the slot of its pod, and for nothing else."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from lockstep.core.model.snapshot import PodPhase
from support.worker_api import ENDPOINTS, OTHER_RUN, RUN, World, made_material, pod, served


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served(World(), made_material()) as opened:
        yield opened


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("no token", 401),
        ("not a token", 401),
        ("basic", 401),
        ("wrong audience", 401),
        ("token of another run", 403),
        ("token of another slot's pod", 403),
        ("claims a newer incarnation", 403),
        ("pod has ended", 403),
        ("pod is gone", 403),
    ],
)
async def test_a_worker_that_is_not_who_it_says_is_refused_everywhere(
    world: World, endpoint: str, wrong: str, expected: int
) -> None:
    await world.say("/v1/register", pod(0))
    body, token = world.body(pod(0)), world.token(pod(0).uid)
    match wrong:
        case "no token":
            token = None
        case "not a token":
            token = "hello"
        case "basic":
            token = ""
        case "wrong audience":
            token = world.token(pod(0).uid, audience="https://kubernetes.default.svc")
        case "token of another run":
            token = world.token(pod(0, run=OTHER_RUN).uid)
        case "token of another slot's pod":
            token = world.token(pod(1).uid)
        case "claims a newer incarnation":
            body["incarnation"] = 2
        case "pod has ended":
            world.pods[pod(0).uid] = replace(pod(0), phase=PodPhase.FAILED)
        case "pod is gone":
            del world.pods[pod(0).uid]
    before = world.book.reports(RUN)
    status, answer, _ = await world.send(endpoint, body, token)
    assert status == expected, answer
    assert set(answer) == {"error", "message"}
    assert world.book.reports(RUN) == before


async def test_a_registration_for_another_run_or_from_no_address_is_refused(world: World) -> None:
    assert (await world.say("/v1/register", pod(0), run="gpt"))[0] == 403
    assert (await world.say("/v1/register", pod(0), namespace="elsewhere"))[0] == 403
    assert (await world.say("/v1/register", pod(0), address="gpu-0.local"))[0] == 400


async def test_a_pods_token_is_worth_nothing_to_another_pod_and_is_written_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stolen = world.token(pod(0).uid)
    answers = []
    for endpoint in ENDPOINTS:
        await world.say("/v1/register", pod(0))
        for thief in (pod(1), pod(0, run=OTHER_RUN), replace(pod(0), slot=7), replace(pod(0), incarnation=9)):
            status, answer, headers = await world.send(endpoint, world.body(thief), stolen)
            assert status == 403
            answers.append(f"{answer} {dict(headers)}")
    world.down = True
    await world.send("/v1/report", world.body(pod(1)), world.token(pod(1).uid))
    assert stolen not in caplog.text + "".join(answers)
    assert world.token(pod(1).uid) not in caplog.text
    assert set(world.book.reports(RUN)) == {0}
    assert world.book.reports(OTHER_RUN) == {}


async def test_known_workers_are_heard_while_the_api_server_is_down(world: World) -> None:
    await world.say("/v1/register", pod(0))
    world.down = True
    assert (await world.say("/v1/report", pod(0)))[0] == 200
    status, answer = await world.say("/v1/register", pod(1))
    assert (status, answer["error"]) == (503, "unavailable")
