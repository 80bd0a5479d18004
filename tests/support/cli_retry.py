"""A run that has ended, and somebody who types `lockstep retry` of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from lockstep.cli.commands import retry as command
from lockstep.cli.options import Target
from lockstep.cli.submission import retry
from lockstep.cli.submission.flags import Creation, Flags, Schedule
from support import sample_runs as sample
from support.cli_server import CliServer

SAVED = {
    "latest": [{"tier": "shared", "step": 400, "path": f"/shared-checkpoints/team/llama/{sample.UID}/a2/step-400"}]
}
BAD = {"tier": "shared", "step": 400, "reason": "it failed soon after it was loaded"}
OLD = f"team/llama/{sample.UID}"


def ended(
    *, checkpoint: dict[str, Any] | None = SAVED, spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    """A run that has failed."""
    raw = sample.failed()
    raw["status"] = raw["status"] | {"checkpoint": checkpoint or {}} | status
    raw["spec"] = raw["spec"] | (spec or {})
    return raw


def ended_for(reason: str, **given: Any) -> dict[str, Any]:
    raw = ended(**given)
    of_its_end = [each for each in raw["status"]["conditions"] if each["type"] == "Finished"]
    for each in of_its_end:
        each["reason"] = reason
    assert of_its_end
    return raw


def with_run(raw: dict[str, Any], **more: Any) -> CliServer:
    there: dict[str, Any] = {"persistentvolumeclaims/lustre": {}, "persistentvolumeclaims/nfs": {}}
    return CliServer({"trainingruns/llama": raw, **there}, **more)


Retried = Callable[..., CliServer]


def retrying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Retried:
    """Types `lockstep retry llama`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def types(server: CliServer, **given: Any) -> CliServer:
        monkeypatch.setattr(Target, "connect", lambda self: server)
        flags = given.pop("flags", Flags())
        schedule = given.pop("schedule", Schedule())
        verb = cast(Any, command.retry).__wrapped__
        about = {key: given.pop(key) for key in ("wait", "test_only", "dry_run", "output") if key in given}
        creation = Creation(no_wait=not about.get("wait"), **about)
        words = {"creation": creation, "flags": flags, "schedule": schedule, **given}
        verb(Target(), words.pop("run", "llama"), words.pop("command", None), **words)
        return server

    return types


def kept() -> list[Path]:
    """Manifests of retries that were cut off."""
    return list(retry._folder().glob("*.yaml"))


ONE_DIRECTORY = {"checkpoint": {"shared": {"claimName": "lustre"}, "layout": "Shared"}}
