"""The way back after one's own mistake, as it is typed: nothing that was saved is lost, or denied."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.training import CLAIM, NAMESPACE, TRAINER, TrainingRun, TrainingSite
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from lockstep.cli.main import main

pytestmark = pytest.mark.nodes

SLOW = 150.0
"""Seconds for what takes a few on an idle machine."""
NAME = "alwaysraise"


def test_a_run_that_failed_by_its_program_goes_on_from_its_checkpoint_under_its_name(
    site: TrainingSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    api, kubeconfig = site.world.cluster.api, str(site.world.cluster.kubeconfig)

    def types(*words: str, code: int = 0) -> str:
        """All that `lockstep WORDS` says."""
        capsys.readouterr()
        split = words.index("--") if "--" in words else len(words)
        with pytest.raises(SystemExit) as end:
            main([*words[:split], "-n", NAMESPACE, "--kubeconfig", kubeconfig, *words[split:]])
        said = capsys.readouterr()
        assert (end.value.code or 0) == code, said
        return said.out + said.err

    def now_called_so() -> TrainingRun:
        run = site.applied(NAME, api.get(failed.path)["metadata"]["uid"], 2, failed.claim)
        site.runs.append(run)
        return run

    failed = site.train(NAME, 2, 60, "--step-delay=0", "--fail=1:44:ValueError: lr", "--fail-again")
    failed.wait_until_finished(SLOW)
    assert failed.condition("Succeeded")["reason"] == "Deterministic"
    assert f"lockstep retry {NAME}" in failed.condition("Succeeded")["message"]
    assert f"to go on from step 40: lockstep retry {NAME} [-f FILE]" in types("explain", NAME)

    manifest = tmp_path / "run.yaml"
    spec = api.get(failed.path)["spec"]
    head = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": NAME}}
    manifest.write_text(yaml.safe_dump(head | {"spec": spec}))
    assert f"lockstep retry {NAME} -f FILE" in types("submit", str(manifest), code=1)
    with pytest.raises(ApiError, match=f"lockstep retry {NAME} -f FILE"):
        api.send(Request("PATCH", failed.path, {"spec": {"image": "mended"}}, MERGE_PATCH))

    mended = ["python3", "-B", f"/app/{TRAINER.name}", "--steps=60", "--step-delay=0"]
    asked = types("retry", NAME, "--test-only", "--", *mended)
    assert f"goes on from step 40 of {NAME}" in asked
    assert f"{NAME} would start now on" in asked
    assert api.get(failed.path)["metadata"]["uid"] == failed.uid
    assert "next" not in api.get(failed.path)["status"]
    said = types("retry", NAME, "--", *mended)
    assert f"goes on from step 40 of {NAME}" in said
    run = now_called_so()
    assert run.uid != failed.uid
    run.wait_until_succeeded(SLOW)
    resume = run.attempts[0]["resumeStep"]
    assert resume == 40
    assert run.status["start"]["resume"]["path"].startswith(f"/shared-checkpoints/{NAMESPACE}/{NAME}/{failed.uid}/")
    (before,) = run.status["previous"]
    assert (before["uid"], before["outcome"], before["reason"], before["saved"]) == (
        failed.uid,
        "Failed",
        "Deterministic",
        40,
    )

    assert f"Before it: {NAME} (UID {failed.uid}), which ended Failed (Deterministic)" in types("history", NAME)

    # Somebody deletes it and makes it anew, by hand.
    api.send(Request("DELETE", run.path))
    asked = site.train(NAME, 2, 70, "--step-delay=0")
    asked.wait_until_finished(SLOW)
    assert asked.condition("Succeeded")["reason"] == "PreviousSaves"
    assert "saved step 60" in asked.condition("Succeeded")["message"]
    assert asked.lineage(1, 0) == [], "no rank was started"
    assert "goes on from step 60 of an earlier run" in types("retry", NAME)
    last = now_called_so()
    last.wait_until_succeeded(SLOW)
    assert last.attempts[0]["resumeStep"] == 60
    assert [each["uid"] for each in last.status["previous"]] == [asked.uid]


def test_with_a_path_of_its_own_a_run_that_is_made_anew_asks_too_and_another_name_does_not(
    site: TrainingSite,
) -> None:
    saving = {"format": "Manifest", "shared": {"claimName": CLAIM, "path": "team/llama"}}
    first = site.train("anew", 2, 20, "--step-delay=0", checkpoint=saving)
    first.wait_until_succeeded(SLOW)
    site.world.cluster.api.send(Request("DELETE", first.path))
    asked = site.train("anew", 2, 30, "--step-delay=0", checkpoint=saving)
    asked.wait_until_finished(SLOW)
    assert asked.condition("Succeeded")["reason"] == "PreviousSaves"
    assert f"{{path: team/llama/{first.uid}}}" in asked.condition("Succeeded")["message"]
    site.train("another", 2, 10, "--step-delay=0", checkpoint=saving).wait_until_succeeded(SLOW)
