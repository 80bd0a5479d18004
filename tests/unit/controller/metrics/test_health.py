"""Liveness, readiness and the scrape, over HTTP."""

import math
from collections.abc import AsyncIterator

import aiohttp
import pytest

from lockstep.controller.metrics.exporter import Metrics, MetricSources
from lockstep.controller.metrics.health import OVERDUE_SECONDS, UNHEARD_SECONDS, Health, application
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.reports import RunSummary


class Process:
    """What the endpoints look at."""

    def __init__(self) -> None:
        self.leads = True
        self.due = 0.0
        self.ages = {"pods": 1.0, "nodes": 2.0}
        self.health = Health(
            leading=lambda: self.leads,
            oldest_due_age=lambda: self.due,
            informer_ages=lambda: self.ages,
        )
        self.metrics = Metrics(
            MetricSources(
                now=lambda: 0.0,
                runs=list,
                queues=list,
                summary=lambda uid: RunSummary(0, None, None, 0.0),
                workers=lambda: 0,
                leading=lambda: self.leads,
                leads_since=lambda: 0.0,
                queue_depth=lambda: 0,
                queue_failing=lambda: 0,
                oldest_due_age=lambda: self.due,
                informer_ages=lambda: self.ages,
                left_out=LeftOut(),
                api_requests={},
                worker_requests={},
                token_reviews={},
            ),
            Tallies(),
        )


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
async def url(process: Process) -> AsyncIterator[str]:
    listener = await Listener.open(application(process.health, process.metrics), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listener.port}"
    await listener.close()


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_a_leader_that_keeps_up_is_healthy(process: Process, url: str) -> None:
    process.due = OVERDUE_SECONDS
    assert await fetch(f"{url}/healthz") == (200, "ok\n")


async def test_a_leader_with_an_overdue_key_is_not(process: Process, url: str) -> None:
    process.due = OVERDUE_SECONDS + 1
    status, text = await fetch(f"{url}/healthz")
    assert status == 503
    assert "overdue" in text


async def test_a_standby_is_healthy_whatever_is_due(process: Process, url: str) -> None:
    process.leads, process.due = False, OVERDUE_SECONDS + 1
    assert (await fetch(f"{url}/healthz"))[0] == 200


@pytest.mark.parametrize("leads", [True, False])
async def test_who_hears_of_everything_is_ready(process: Process, url: str, leads: bool) -> None:
    process.leads = leads
    assert await fetch(f"{url}/readyz") == (200, "ok\n")


@pytest.mark.parametrize("age", [UNHEARD_SECONDS + 1, math.inf])
async def test_an_informer_gone_silent_or_not_yet_listed_is_named(process: Process, url: str, age: float) -> None:
    process.ages["pods"] = age
    status, text = await fetch(f"{url}/readyz")
    assert (status, text) == (503, "not heard from the API server about pods\n")


async def test_metrics_are_served_as_text(url: str) -> None:
    status, text = await fetch(f"{url}/metrics")
    assert status == 200
    assert "lockstep_leader 1.0" in text
