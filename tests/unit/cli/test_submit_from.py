"""What a new run starts from by `lockstep submit --from`, and what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lockstep.cli.commands import submit as submitting
from lockstep.cli.errors import CliError
from lockstep.cli.options import Target
from lockstep.cli.submission import going_on
from lockstep.cli.submission.flags import Creation, Flags, Schedule
from support.cli_retry import BAD, SAVED, ended, with_run


def test_submit_from_a_run_names_it_and_takes_its_claim_where_the_new_one_has_none() -> None:
    manifest = Flags(image="x", command=["a"]).manifest("next")
    going_on.start_from(manifest, ended())
    assert manifest["spec"]["checkpoint"] == {"shared": {"claimName": "lustre"}, "start": {"run": "llama"}}


def test_submit_from_a_run_takes_the_step_that_its_manifest_names_whatever_came_of_it() -> None:
    manifest = Flags(image="x", command=["a"]).manifest("next")
    manifest["spec"]["checkpoint"] = {"shared": {"claimName": "lustre"}, "start": {"step": 400}}
    going_on.start_from(manifest, ended(checkpoint=SAVED | {"quarantined": [BAD]}))
    assert manifest["spec"]["checkpoint"]["start"] == {"run": "llama", "step": 400}


@pytest.mark.parametrize("array", ["", "0-3"])
def test_submit_takes_from_as_a_flag_for_runs_and_arrays(monkeypatch: pytest.MonkeyPatch, array: str) -> None:
    server = with_run(ended())
    monkeypatch.setattr(Target, "connect", lambda self: server)
    verb = cast(Any, submitting.submit).__wrapped__
    words: Any = {
        "flags": Flags(image="x"),
        "schedule": Schedule(),
        "origin": "llama",
        "creation": Creation(no_wait=True),
    }
    verb(Target(), ["a"], "next", array=array, **words)
    spec = server.made["spec"]["template"]["spec"] if array else server.made["spec"]
    assert spec["checkpoint"]["start"] == {"run": "llama"}
    assert server.done == ["create"]


@pytest.mark.parametrize(
    ("raw", "name", "checkpoint", "words"),
    [
        (ended(checkpoint={}), "next", None, "has saved nothing in a shared tier"),
        (ended(), "llama", None, "cannot start from itself"),
        (ended(checkpoint=SAVED | {"ceiling": 300}), "next", None, "went wrong after step 300 of llama"),
        (ended(checkpoint=SAVED | {"quarantined": [BAD]}), "next", None, "is in quarantine: it failed"),
        (ended(), "next", {"shared": {"claimName": "nfs"}}, "saved on claim lustre, the new one on nfs"),
        (ended(), "next", {"local": {"storage": "nvme"}}, "the new one names no shared tier"),
        (
            ended(),
            "next",
            {"shared": {"claimName": "lustre"}, "start": {"path": "a/b"}},
            "by its manifest it goes on from a/b",
        ),
    ],
)
def test_submit_from_a_run_that_it_cannot_start_from_is_refused(
    raw: dict[str, Any], name: str, checkpoint: Any, words: str
) -> None:
    manifest = Flags(image="x", command=["a"]).manifest(name)
    if checkpoint is not None:
        manifest["spec"]["checkpoint"] = checkpoint
    with pytest.raises(CliError, match=words):
        going_on.start_from(manifest, raw)
