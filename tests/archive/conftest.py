"""One S3 server for all tests of the archive; each has a corner of its bucket to itself."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from harness.object_store import ACCESS, BUCKET, SECRET, S3Server
from localcluster import build
from localcluster.state import free_ports
from lockstep.archive.store import ObjectStore


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    build.build_all(names=("versitygw",))
    server = S3Server(tmp_path_factory.mktemp("s3"), free_ports(("s3",))["s3"])
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(running_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    yield running_server
    if running_server.process is None:
        running_server.start()


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Each test has the bucket's own corner to itself."""
    return f"{abs(hash(request.node.name)) % 10**8}-{os.getpid()}"


@pytest.fixture
def uri(prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}"


@pytest.fixture
def store(server: S3Server, uri: str) -> ObjectStore:
    return ObjectStore.open(uri, server.endpoint, retry_seconds=5)
