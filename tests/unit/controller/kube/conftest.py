"""The Kubernetes client, and the fake API server that it asks."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from lockstep.controller.kube.client import KubeClient
from support.kube_server import FakeServer, asking, served


@pytest.fixture
async def fake() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def server(fake: FakeServer) -> AsyncIterator[TestServer]:
    async with served(fake) as running:
        yield running


@pytest.fixture
async def kube(server: TestServer) -> AsyncIterator[KubeClient]:
    async with asking(server) as client:
        yield client
