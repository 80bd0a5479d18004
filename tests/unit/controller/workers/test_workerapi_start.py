"""What a worker is told as it is to start an attempt, certificates and tokens among it, and nobody else is."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509

from lockstep.controller.workers.step_certificates import StepIdentity, WorkerOfAttempt
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.snapshot import PodView
from support.worker_api import OTHER_RUN, PREPARE, RELEASE, RUN, World, made_material, pod, served


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served(World(), made_material()) as opened:
        yield opened


async def test_the_pattern_of_the_steps_is_told_to_who_is_to_start_and_to_nobody_else(world: World) -> None:
    await world.say("/v1/register", pod(0))
    world.book.set_directive(RUN, replace(RELEASE, progress_pattern="at (?P<step>[0-9]+)"))
    assert (await world.say("/v1/report", pod(0)))[1]["progressPattern"] == "at (?P<step>[0-9]+)"
    assert "progressPattern" not in (await world.say("/v1/report", pod(0), attempt=1, phase="Running"))[1]
    world.book.set_directive(RUN, RELEASE)
    assert "progressPattern" not in (await world.say("/v1/report", pod(0)))[1]


async def test_who_is_to_start_an_attempt_with_steps_is_told_how_its_peers_know_it(world: World) -> None:
    for slot in (0, 1):
        await world.say("/v1/register", pod(slot))
    world.book.set_directive(RUN, replace(RELEASE, step_ports=(5000, 5001)))
    answers = [(await world.say("/v1/report", pod(slot)))[1] for slot in (0, 1)]
    answers.append((await world.say("/v1/register", pod(1)))[1])
    assert {tuple(answer["steps"]["ports"]) for answer in answers} == {(5000, 5001)}
    assert len({answer["steps"]["ca"] for answer in answers}) == 1
    assert [_uri(answer["steps"]["certificate"]) for answer in answers] == [
        f"lockstep://run/{RUN}/attempt/1/slot/{slot}/incarnation/1" for slot in (0, 1, 1)
    ]
    assert len({answer["steps"]["key"] for answer in answers}) == 3


async def test_who_is_to_start_an_attempt_of_ray_shares_a_token_with_its_peers(world: World) -> None:
    for slot in (0, 1):
        await world.say("/v1/register", pod(slot))
    world.book.set_directive(RUN, replace(RELEASE, has_token=True))
    answers = [(await world.say("/v1/report", pod(slot)))[1] for slot in (0, 1)]
    assert [answer["token"] for answer in answers] == [world.steps.token(RUN, 1)] * 2
    world.book.set_directive(RUN, replace(RELEASE, has_token=True, joining=frozenset({1})))
    answer = (await world.say("/v1/report", pod(1)))[1]
    assert (answer["phase"], answer["rank"], answer["worldSize"]) == ("Prepare", 1, 2), "it prepares to join"


SPARE = replace(RELEASE, step_ports=(5000,), incarnations=(1, 1), slot_ranks=(0, -1))


@pytest.mark.parametrize(
    ("directive", "speaker", "said"),
    [
        (RELEASE, pod(1), {}),
        (replace(PREPARE, step_ports=(5000, 5001)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001)), pod(1), {"attempt": 1, "phase": "Running"}),
        (replace(RELEASE, step_ports=(5000, 5001), attempt=2), pod(1), {"attempt": 7}),
        (SPARE, pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001), incarnations=(1, 2)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001), incarnations=(1, 0)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000,), incarnations=(1,), slot_ranks=(0,)), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001)), pod(0, run=OTHER_RUN), {}),
        (replace(RELEASE, step_ports=(5000, 5001), phase=DesiredPhase.STOP), pod(1), {}),
        (replace(RELEASE, step_ports=(5000, 5001), joining=frozenset({1})), pod(1), {}),
    ],
    ids=[
        "a run without steps", "at the barrier", "it has begun the attempt", "it is in a later attempt", "a spare",
        "an older incarnation", "a newer incarnation", "no slot of the gang", "another run", "a gang that stops",
        "one that has yet to join",
    ],
)  # fmt: skip
async def test_nobody_else_gets_a_certificate(
    world: World, directive: Directive, speaker: PodView, said: dict[str, Any]
) -> None:
    world.book.set_directive(RUN, replace(directive, has_token=bool(directive.step_ports)))
    await world.say("/v1/register", speaker)
    status, answer = await world.say("/v1/report", speaker, **said)
    assert status == 200
    assert "steps" not in answer
    assert "token" not in answer
    assert "PRIVATE KEY" not in json.dumps(answer)


async def test_a_leader_deposed_while_it_issues_gives_no_certificate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.say("/v1/register", pod(0))
    world.book.set_directive(RUN, replace(RELEASE, step_ports=(5000, 5001)))
    issue = world.steps.issued

    def depose(worker: WorkerOfAttempt) -> StepIdentity:
        world.epoch = None
        return issue(worker)

    monkeypatch.setattr(world.steps, "issued", depose)
    assert (await world.say("/v1/report", pod(0)))[0] == 503


def _uri(certificate: str) -> str:
    names = x509.load_pem_x509_certificate(certificate.encode()).extensions
    [uri] = names.get_extension_for_class(x509.SubjectAlternativeName).value
    return str(uri.value)
