"""Each verb that takes a run takes the number of a batch job, and does with it what it does with the name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lockstep.cli import client
from lockstep.cli.client import Json, Query
from lockstep.cli.main import app, main
from support import sample_runs as sample
from support.cli_server import CliServer

JOB = 47110815
VERBS: dict[tuple[str, ...], tuple[Json, list[str]]] = {
    ("info",): (sample.running(), []),
    ("status",): (sample.running(), []),
    ("explain",): (sample.running(), []),
    ("logs",): (sample.running(), []),
    ("events",): (sample.running(), []),
    ("history",): (sample.running(), []),
    ("bundle",): (sample.running(), ["-o", "it.tar.gz"]),
    ("render",): (sample.running(), []),
    ("wait",): (sample.running(), ["--for", "running"]),
    ("cancel",): (sample.running(), []),
    ("suspend",): (sample.running(), []),
    ("resume",): (sample.run(suspend=True), []),
    ("prio",): (sample.pending(position=3, updated=sample.at(30), priority=7), []),
    ("hold",): (sample.pending(), []),
    ("release",): (sample.run(suspend=True), []),
    ("requeue",): (sample.running(), []),
    ("retry",): (sample.failed(), ["--fresh", "--name", "llama-2", "--no-wait"]),
    ("checkpoint", "save"): (sample.running(), []),
}
"""With a run that they are for, and what else they are told."""


class Numbered(CliServer):
    """Has a run with a number, and keeps what was asked of it."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        super().__init__(objects)
        self.sent: list[str] = []

    def get(self, path: str, **query: Query) -> Json:
        """One object."""
        self.sent.append(f"GET {path}")
        return super().get(path, **query)

    def list(self, path: str, **query: Query) -> Json:
        """A list."""
        self.sent.append(f"GET {path} {query}")
        return super().list(path, **query)

    def stream(self, path: str, *, read_timeout: float | None = None, **query: Query) -> Iterator[bytes]:
        """A log."""
        self.sent.append(f"GET {path}")
        return iter((b"2026-11-26T10:00:00.000000000Z step 1\n",))

    def merge_patch(self, path: str, patch: Json) -> Json:
        """A change."""
        self.sent.append(f"PATCH {path}")
        return super().merge_patch(path, patch)


def verbs_of(command: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from verbs_of(inner, (*above, name))
        else:
            yield (*above, name), inner


def test_every_verb_that_takes_a_run_is_held_to_it() -> None:
    takes_a_run = {
        verb
        for verb, command in verbs_of(typer.main.get_command(app))
        if any(str(p.metavar).startswith("RUN") for p in command.params if p.param_type_name == "argument")
    }
    assert takes_a_run == {*VERBS}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_does_with_the_number_what_it_does_with_the_name(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    raw, words = VERBS[verb]
    raw = raw | {"status": (raw.get("status") or {}) | {"jobId": JOB}}
    found = []
    for typed in ("llama", str(JOB)):
        server = Numbered({"trainingruns/llama": raw})
        monkeypatch.setattr(client, "connect", lambda *args, server=server: server)
        with pytest.raises(SystemExit) as end:
            main([*verb, typed, *words])
        said = capsys.readouterr()
        assert end.value.code in (0, None), said.err
        assert not [each for each in server.sent if str(JOB) in each and not each.endswith(f"/trainingruns/{JOB}")], (
            "but to see whether a run is called so"
        )
        assert f"PATCH /apis/lockstep.dev/v1alpha1/namespaces/team/trainingruns/{JOB}" not in server.sent
        found.append((said.out, [place for place, _ in server.patches], len(server.created)))
    assert found[0] == found[1]


def test_the_status_of_an_array_is_found_by_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"indices": "0-3", "template": {"spec": sample.SPEC}}
    metadata = sample.run("sweep")["metadata"] | {"uid": "s"}
    array = {"metadata": metadata, "spec": spec, "status": {"jobId": JOB}}
    server = Numbered({"trainingrunsets/sweep": array})
    monkeypatch.setattr(client, "connect", lambda *args: server)
    with pytest.raises(SystemExit) as end:
        main(["status", str(JOB)])
    said = capsys.readouterr()
    assert end.value.code in (0, None), said.err
    assert said.out.startswith("sweep is ")
