"""What `lockstep bundle` collects, and what it leaves out."""

import io
import tarfile
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.client import Cluster
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.views import bundle
from support import sample_runs as sample

LOG = (
    b"lockstep: attempt=1 rank=0 node=gpu-1 resume=none world=4 start\n"
    b"step 1\n"
    b"lockstep: attempt=1 node=gpu-1 end code=1 reason=Error after=3.2s\n"
    b"lockstep: attempt=2 node=gpu-1 sees shared a1/step-90 Invalid (no manifest.json); shared a1/step-80 Valid\n"
    b"lockstep: attempt=2 node=gpu-1 end signal=9 reason=OOMKilled after=1.0s\n"
)


def pod(run: dict[str, Any], slot: int) -> dict[str, Any]:
    name = names.pod_name(run["metadata"]["name"], run["metadata"]["uid"], slot, 1)
    labels = {names.LABEL_SLOT: str(slot), names.LABEL_INCARNATION: "1"}
    env = [{"name": "WANDB_API_KEY", "value": "hunter2"}, {"name": "LR", "value": "3e-4"}]
    containers = [{"name": names.CONTAINER_NAME, "env": env}]
    state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-01T00:00:00Z"}}
    return {
        "metadata": {"name": name, "labels": labels, "managedFields": ["noise"]},
        "spec": {"nodeName": f"gpu-{slot + 1}", "containers": containers},
        "status": {"containerStatuses": [{"name": names.CONTAINER_NAME, "state": state}]},
    }


class Recorded:
    """An API server that knows one run, whose second pod's log is gone."""

    namespace = "team"

    def __init__(self, *, forbidden: tuple[str, ...] = ()) -> None:
        self.run = sample.failed()
        entry = self.run["status"]["attempts"][-1]
        entry["stacks"] = "llama-stacks-1"
        self.forbidden = forbidden

    def _check(self, path: str) -> None:
        if any(path.split("?")[0].endswith(word) for word in self.forbidden):
            raise ApiServerError(403, f"{path} is forbidden")

    def get(self, path: str) -> dict[str, Any]:
        self._check(path)
        if names.RUNS in path:
            return self.run
        if "configmaps" in path:
            return {"data": {"stacks.json": "[]", "../../evil": "x"}}
        raise ApiServerError(404, f"{path} is not there")

    def list(self, path: str, **query: object) -> dict[str, Any]:
        self._check(path)
        items = [pod(self.run, 1), pod(self.run, 0)] if path.endswith("/pods") else []
        return {"items": items, "metadata": {}}

    def stream(self, path: str, **query: object) -> Iterator[bytes]:
        if "-1-1/" in path:
            raise ApiServerError(404, "the container is gone")
        yield b"x" * bundle.MAX_LOG_BYTES
        yield LOG


@dataclass
class Collected:
    files: dict[str, bytes]
    missing: list[str]


def collected(api: Recorded) -> Collected:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        made = bundle.Bundle(archive, "b", sample.NOW)
        bundle.collect(made, cast(Cluster, api), "failed", 100)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        files = {entry.name.removeprefix("b/"): archive.extractfile(entry) for entry in archive}
        return Collected({name: file.read() for name, file in files.items() if file is not None}, made.missing)


def test_everything_that_can_be_read_is_in_it() -> None:
    found = collected(Recorded())
    assert {"README.txt", "run.yaml", "explain.txt", "history.txt", "events.txt", "placement.tsv", "exits.tsv"} <= set(
        found.files
    )
    assert [name for name in found.files if name.startswith("stacks/")] == [
        "stacks/llama-stacks-1/stacks.json",
        "stacks/llama-stacks-1/evil",
    ]
    exits = found.files["exits.tsv"].decode().splitlines()
    assert "0\t1\tgpu-1\t1\tcode 1 (Error)" in exits
    assert "0\t1\tgpu-1\t2\tsignal 9 (OOMKilled)" in exits
    assert any(line.startswith("1\t1\tgpu-2\t-\tcontainer: code 137") for line in exits)
    seen = found.files["inventories.tsv"].decode().splitlines()
    what = "shared a1/step-90 Invalid (no manifest.json); shared a1/step-80 Valid"
    assert seen[1:] == [f"0\t1\tgpu-1\t2\t{what}"]


def test_what_is_missing_is_said_with_the_reason() -> None:
    found = collected(Recorded(forbidden=("/events",)))
    assert "events.txt" not in found.files
    assert any(line.startswith("events: ") and "forbidden" in line for line in found.missing)
    assert any(line.startswith("log of pod ") and "the container is gone" in line for line in found.missing)
    assert any(line.startswith("its queue: ") for line in found.missing)


def test_the_end_of_a_long_log_is_kept() -> None:
    log = next(content for name, content in collected(Recorded()).files.items() if name.startswith("logs/"))
    assert len(log) == bundle.MAX_LOG_BYTES
    assert log.endswith(LOG)


def test_values_that_look_secret_are_left_out_and_others_are_not() -> None:
    text = next(c for name, c in collected(Recorded()).files.items() if name.startswith("pods/")).decode()
    assert "hunter2" not in text
    assert "3e-4" in text
    assert "noise" not in text
    reference = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert bundle.redacted(reference) == reference
    for name in ("SSH_KEY", "DB_PASS", "SENTRY_DSN", "SLACK_WEBHOOK_URL", "AWS_SECRET_ACCESS_KEY"):
        assert bundle.redacted({"name": name, "value": "hunter2"})["value"] == bundle.REDACTED


def test_the_archive_opens_as_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "llama.tar.gz"
    bundle.make(cast(Cluster, Recorded()), "failed", str(target), 100)
    assert capsys.readouterr().out.strip() == str(target)
    with tarfile.open(target) as archive:
        listed = archive.getnames()
        assert {name.split("/")[0] for name in listed} == {"llama"}
        run = archive.extractfile("llama/run.yaml")
        assert run is not None
        assert yaml.safe_load(run.read())["kind"] == names.RUN_KIND
        assert "llama/MISSING.txt" in listed


def test_a_bundle_is_for_its_owner_alone_and_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "llama.tar.gz"
    bundle.make(cast(Cluster, Recorded()), "failed", str(target), 100)
    assert target.stat().st_mode & 0o077 == 0
    target.write_text("the one before")
    with pytest.raises(ApiServerError):
        bundle.make(cast(Cluster, Recorded(forbidden=("/failed",))), "failed", str(target), 100)
    assert target.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.slow
def test_the_logs_of_a_large_gang_are_never_in_memory_all_at_once(tmp_path: Path) -> None:
    class Large(Recorded):
        def list(self, path: str, **query: object) -> dict[str, Any]:
            items = [pod(self.run, slot) for slot in range(100)] if path.endswith("/pods") else []
            return {"items": items, "metadata": {}}

        def stream(self, path: str, **query: object) -> Iterator[bytes]:
            yield bytes(bundle.MAX_LOG_BYTES)

    tracemalloc.start()
    try:
        bundle.make(cast(Cluster, Large()), "failed", str(tmp_path / "b.tar.gz"), 100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * bundle.READERS * bundle.MAX_LOG_BYTES  # while one is added, its chunks are


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("train --hf-token=hunter2 --lr=1", "train --hf-token=(redacted) --lr=1"),
        ("export HF_TOKEN=hunter2; train", "export HF_TOKEN=(redacted) train"),
        ("git clone https://me:hunter2@host/x", "git clone https://(redacted)@host/x"),
        (
            "train --tokenizer=llama --max-tokens=8 s3://bucket/x",
            "train --tokenizer=llama --max-tokens=8 s3://bucket/x",
        ),
    ],
)
def test_what_looks_secret_in_a_command_is_left_out(command: str, told: str) -> None:
    assert bundle.redacted({"args": ["-c", command]}) == {"args": ["-c", told]}


def test_a_place_that_is_not_there_is_said_before_anything_is_read() -> None:
    with pytest.raises(CliError, match="there is no directory"):
        bundle.make(cast(Cluster, Recorded()), "failed", "/nowhere/b.tar.gz", 100)


def test_what_kubectl_keeps_of_the_manifest_is_left_out() -> None:
    api = Recorded()
    applied = '{"env":[{"name":"HF_TOKEN","value":"hunter2"}]}'
    api.run["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied, "team": "llm"}
    text = collected(api).files["run.yaml"].decode()
    assert "hunter2" not in text
    assert "team: llm" in text


def test_a_pod_that_only_copied_the_label_spoils_nothing() -> None:
    class WithStranger(Recorded):
        def list(self, path: str, **query: object) -> dict[str, Any]:
            found = super().list(path, **query)
            if path.endswith("/pods"):
                labels = {names.LABEL_RUN_UID: self.run["metadata"]["uid"], names.LABEL_SLOT: "x"}
                found["items"].append({"metadata": {"name": "stranger", "labels": labels}, "spec": {}})
            return found

    found = collected(WithStranger())
    assert "pods/stranger.yaml" in found.files
    assert any(line.startswith("0\t1\tgpu-1") for line in found.files["exits.tsv"].decode().splitlines())


def test_a_log_that_only_looks_like_the_workers_holds_up_nothing() -> None:
    digits = b"9" * 5000
    assert next(bundle.exits_of(b"lockstep: attempt=" + digits + b" end code=1 reason=x\n" + LOG))[0] == 1
    begun = time.process_time()
    assert list(bundle.exits_of(b"lockstep: attempt=1 " * 13_000)) == []
    assert time.process_time() - begun < 2.0
