"""A new run beside an ended one: what it is called, what it is made of, and what is told before."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.core.run.way_back import begins
from lockstep.present import code_maps, going_on
from lockstep.present.going_on import NEWEST, Beginning, CannotGoOnError
from support import sample_runs

NOW = sample_runs.NOW
EARLIER = {"uid": "old", "step": 30, "path": "/shared-checkpoints/team/llama/old/a1/step-30"}
BAD = {"tier": "shared", "step": 400, "reason": "it failed soon after it was loaded"}
LATEST = {"tier": "shared", "step": 400, "path": "/shared-checkpoints/x/a2/step-400"}


def ended(spec: dict[str, Any] | None = None, checkpoint: dict[str, Any] | None = None, **status: Any) -> RunView:
    raw = sample_runs.failed()
    raw["status"] |= {"checkpoint": {"latest": [LATEST]} if checkpoint is None else checkpoint} | status
    return parse_run(raw | {"spec": raw["spec"] | (spec or {})})


@pytest.mark.parametrize(
    ("name", "taken", "next_one"),
    [
        ("llama", "", "llama-r2"),
        ("llama", "llama-r2 llama-r3", "llama-r4"),
        ("llama-r2", "llama", "llama-r3"),
        ("gpt-3", "", "gpt-3-r2"),  # a version is none of ours
        ("sweep-7", "", "sweep-7-r2"),  # of an array, whose next index is sweep-8
        ("llama-r999", "", "llama-r1000"),
        ("llama-r1000", "", "llama-r1000-r2"),
        ("x" * 40, "", "x" * 37 + "-r2"),
        ("x" * 36 + "-abc", "", "x" * 36 + "-r2"),
        ("llama-r2", " ".join(f"llama-r{number}" for number in range(2, 200)), ""),
    ],
)
def test_the_new_run_has_the_next_name_that_is_free(name: str, taken: str, next_one: str) -> None:
    found = going_on.next_name(name, taken.split().__contains__)
    assert found == next_one
    assert len(found) <= names.MAX_RUN_NAME


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (ended(), "A new run, llama-r2, is made as llama was. It goes on from step 400 of llama, in the shared tier."),
        (ended(), "12 steps since step 400 are lost, to be repeated."),
        (ended(), "llama-r2 queues in default for 4 nodes."),
        (ended(progress={"step": 412, "stepMicroseconds": 10_000_000}), "12 steps since step 400 (about 2m) are lost"),
        (ended(progress={"step": 401}), "1 step since step 400 is lost"),
        (ended(progress={"step": 400}), "No step is lost."),
        (ended(checkpoint={}), "It begins at step 0, as nothing was saved. llama and"),
        (ended(checkpoint={}), "412 steps are lost, to be repeated."),
        (ended(checkpoint={"latest": [LATEST, LATEST | {"tier": "local", "step": 410}]}), "Step 410 is on its nodes'"),
        (ended({"deadline": "2020-01-01T00:00:00Z"}), "deadline of llama is over and left out."),
        (
            ended({"dependsOn": [{"name": "a"}], "notBefore": sample_runs.at(9)}),
            "dependsOn, notBefore of llama are over",
        ),
        (ended(next={"name": "llama-r1", "uid": "u"}), "llama-r1 went on from llama before."),
        (ended(), "That corrects nothing: lockstep retry llama with -f FILE or flags changes what it runs."),
    ],
)
def test_before_a_retry_it_is_said_from_where_it_goes_on_and_what_is_lost(run: RunView, said: str) -> None:
    assert said in " ".join(going_on.preview(run, "llama-r2", NOW))


SAVED_400 = "Whatever it did since step 400 is lost, to be repeated: it reported no step."


@pytest.mark.parametrize(
    ("checkpoint", "begin", "said"),
    [
        (None, NEWEST, SAVED_400),
        (None, Beginning(step=300), "Whatever it did since step 300 is lost, to be repeated: it"),
        (None, Beginning(fresh=True), "Whatever it did is lost, to be repeated: it"),
        ({}, NEWEST, "Whatever it did is lost, to be repeated: it"),
        (
            {"unrecognised": [{"tier": "shared", "path": "/x/a2"}]},
            NEWEST,
            "Whatever it did since it last saved is lost",
        ),
    ],
)
def test_what_a_run_did_that_reported_no_step_is_not_called_nothing(
    checkpoint: dict[str, Any] | None, begin: Beginning, said: str
) -> None:
    told = " ".join(going_on.preview(ended(checkpoint=checkpoint, progress={}), "llama-r2", NOW, begin))
    assert said in told
    assert "No step is lost" not in told


def test_a_run_that_never_began_lost_nothing() -> None:
    run = ended(checkpoint={}, progress={}, attempts=[], attempt=0)
    assert "No step is lost." in " ".join(going_on.preview(run, "llama-r2", NOW))


def test_what_was_cancelled_is_not_said_to_need_mending() -> None:
    assert "mended" not in " ".join(going_on.preview(ended({"cancel": True}), "llama-r2", NOW))


@pytest.mark.parametrize(
    "resume",
    [
        {"tier": "shared", "step": 300, "path": "/shared-checkpoints/base/a1/step-300", "attempt": 1},
        {"tier": "local", "step": 405, "path": "/local-checkpoints/x/a1/step-405", "attempt": 1},
    ],
)
def test_steps_that_it_began_with_are_not_told_as_lost(resume: dict[str, Any]) -> None:
    run = ended(
        {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"path": "base"}}},
        {"resume": resume},
        resolved={"startRoot": "/shared-checkpoints/base"},
        attempts=[{"number": 1, "resumeStep": 300, "resumeTier": "shared"}],
    )
    told = " ".join(going_on.preview(run, "llama-r2", NOW))
    assert "112 steps are lost" in told


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (Beginning(step=300), "It goes on from step 300 of llama, in the shared tier."),
        (Beginning(step=300), "112 steps since step 300 are lost"),
        (Beginning(step=500), "No step is lost."),
        (Beginning(fresh=True), "It begins at step 0. llama and its saves stay. 412 steps are lost, to be repeated."),
    ],
)
def test_what_is_lost_depends_on_where_the_new_run_begins(begin: Beginning, said: str) -> None:
    resume = {"tier": "shared", "step": 300, "path": "/shared-checkpoints/base/a1/step-300", "attempt": 1}
    run = ended(checkpoint={"latest": [LATEST], "resume": resume})
    assert said in " ".join(going_on.preview(run, "llama-r2", NOW, begin))


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        ({"latest": [LATEST | {"tier": "local"}]}, "--fresh begins at step 0"),
        ({"latest": [LATEST], "ceiling": 300}, "--step 400 takes it all the same"),
        ({"latest": [LATEST], "quarantined": [BAD]}, "--step 400 takes it all the same"),
    ],
)
def test_what_cannot_be_gone_on_from_by_itself_names_the_command(checkpoint: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotGoOnError) as refused:
        list(going_on.preview(ended(checkpoint=checkpoint), "llama-r2", NOW))
    assert words in refused.value.remedy


def test_a_checkpoint_in_quarantine_is_named_with_what_came_of_it() -> None:
    run = ended(checkpoint={"latest": [LATEST], "quarantined": [BAD]})
    with pytest.raises(CannotGoOnError, match="step 400, the newest checkpoint of llama, is in quarantine: it failed"):
        list(going_on.preview(run, "llama-r2", NOW))
    assert "It goes on from step 300" in " ".join(going_on.preview(run, "llama-r2", NOW, Beginning(step=300)))


ODD: list[Any] = [
    None,
    1,
    "x",
    [1],
    ["x"],
    {},
    {"sources": 1},
    {"sources": ["x"]},
    {"sources": [{"configMap": {"name": 1}}]},
]


@pytest.mark.parametrize("projected", ODD)
def test_volumes_that_make_no_sense_mount_no_code(projected: Any) -> None:
    assert list(code_maps.mounted_by({"spec": {"volumes": [{"name": "code", "projected": projected}]}})) == []
    assert list(code_maps.mounted_by({"spec": {"volumes": projected}})) == []


def test_code_of_a_run_and_of_an_array_is_found_by_its_volume() -> None:
    sources = {"sources": [{"configMap": {"name": "llama-code-ab1cd"}}, {"configMap": {"name": "mine"}}]}
    spec = {"volumes": [{"name": "code", "projected": sources}, {"name": "data", "projected": sources}]}
    assert list(code_maps.mounted_by({"spec": spec})) == ["llama-code-ab1cd"]
    assert list(code_maps.mounted_by({"spec": {"template": {"spec": spec}}})) == ["llama-code-ab1cd"]


@pytest.mark.parametrize(
    "run",
    [
        ended(),
        ended(checkpoint={"latest": []}),
        ended(checkpoint={"latest": [], "previousSaves": [EARLIER]}),
        ended(checkpoint={"latest": [], "unrecognised": [{"tier": "shared", "path": "/shared-checkpoints/x.bin"}]}),
        ended(checkpoint={"latest": [LATEST | {"tier": "local"}]}),
        ended(checkpoint={"unrecognised": [{"tier": "local", "path": "/local-checkpoints/x.bin"}]}),
        ended(checkpoint={"latest": [LATEST], "ceiling": 300}),
        ended(checkpoint={"latest": [LATEST], "quarantined": [BAD]}),
        ended(checkpoint={"latest": [LATEST | {"attempt": 2}], "quarantined": [BAD | {"attempt": 1}]}),
    ],
)
def test_what_an_end_promises_is_what_the_command_does(run: RunView) -> None:
    verb, flag = begins(run, run.status)
    assert run.spec is not None
    manifest, _ = going_on.again(run, {}, run.spec.dump_written(), sample_runs.NOW)
    if flag:
        with pytest.raises(CannotGoOnError) as refused:
            going_on.start_after(manifest, run)
        assert flag.split()[0] in refused.value.remedy
    else:
        words = going_on.start_after(manifest, run)
        assert words.replace("goes", "go").replace("begins", "begin").startswith(verb)
