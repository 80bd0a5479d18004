"""A copy that did not keep its times: said to be one, with the remedies, and accepted where the run says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli.main import main
from lockstep.worker.checkpoints.formats import examine, verify_checkpoint
from lockstep.worker.checkpoints.inventory import CommitWatch, survey
from lockstep.worker.settings import Settings, Tier
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts

WHOLE: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "dcp": ("step-100", layouts.dcp, ".metadata"),
    "megatron": ("iter_0000100", layouts.megatron, "metadata.json"),
    "hugging-face": ("checkpoint-100", lambda path: layouts.hugging_face(path, ranks=3), "trainer_state.json"),
    "zero-3": ("global_step100", lambda path: layouts.deepspeed(path, stage=3), ""),
    "accelerate": ("step_100", layouts.accelerate, "random_states_0.pkl"),
    "orbax": ("100", layouts.orbax, "_CHECKPOINT_METADATA"),
}
REMEDY = "all else is right, as of a copy that did not keep times: copy with times"


def copied(path: Path) -> Path:
    """As `cp -r` leaves it: in the order of the names backwards, which no format writes in, a while apart."""
    files = sorted((each for each in path.rglob("*") if each.is_file()), key=lambda each: each.name, reverse=True)
    markers = [each for each in files if each.name in {marker for _, _, marker in WHOLE.values()}]
    at = layouts.LONG_AGO
    for file in [*markers, *(each for each in files if each not in markers)]:
        os.utime(file, (at, at))
        at += 300.0
    return path


@pytest.fixture(params=WHOLE)
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """(path, marker) of a copy below base/."""
    name, make, marker = WHOLE[request.param]
    make(tmp_path / "base" / name)
    return copied(tmp_path / "base" / name), marker


def test_it_is_refused_for_its_times_alone_and_whole_without_them(copy: tuple[Path, str]) -> None:
    path, marker = copy
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.as_copied) == ("Invalid", True), finding.reason
    assert finding.marker == marker
    without = examine(str(path), trusts_times=False)
    assert without is not None
    assert (without.verdict, without.reason) == ("Valid", "")
    assert verify_checkpoint(str(path), trusts_times=False) == ("Valid", "")


def test_touching_the_marker_makes_it_valid(copy: tuple[Path, str]) -> None:
    path, marker = copy
    if not marker:
        return  # DeepSpeed has none: a copy with times, or word that it is one
    os.utime(path / marker, (layouts.LONG_AGO + 90_000.0,) * 2)
    finding = examine(str(path))
    assert finding is not None
    assert (finding.verdict, finding.reason) == ("Valid", "")


def test_what_is_torn_besides_is_no_copy_and_is_refused_either_way(copy: tuple[Path, str]) -> None:
    path, _ = copy
    largest = max((each for each in path.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    os.utime(largest, (layouts.LONG_AGO + 90_000.0,) * 2)
    for trusts_times in (True, False):
        finding = examine(str(path), trusts_times=trusts_times)
        assert finding is not None
        assert (finding.verdict, finding.as_copied) == ("Invalid", False)


def settings(root: Path) -> Settings:
    return Settings(
        operator_url="", namespace="ns", run="one", run_uid="u1", slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(root / "ns" / "one"), 2.0)}, start_root=str(root / "base"),
    )  # fmt: skip


def test_a_run_that_starts_from_it_hears_the_remedies_and_may_accept_it(copy: tuple[Path, str], tmp_path: Path) -> None:
    _, marker = copy
    (row,) = survey(settings(tmp_path), 1, 0, 1)
    assert (row["verdict"], row["asCopied"]) == ("Unknown", True)
    assert REMEDY in row["reason"]
    assert f"touch {marker}," in row["reason"] or not marker
    assert row["reason"].endswith("or accept it (start.acceptCopy)")
    (accepted,) = survey(replace(settings(tmp_path), start_copied=True), 1, 0, 1)
    assert (accepted["verdict"], accepted["step"]) == ("Valid", 100)


@pytest.mark.parametrize("case", WHOLE)
def test_its_own_saves_are_held_to_their_times_all_the_same_with_the_remedies_and_may_be_accepted_too(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, make, marker = WHOLE[case]
    make(tmp_path / "ns/one/u1/a1" / name)
    copied(tmp_path / "ns/one/u1/a1" / name)
    (row,) = survey(replace(settings(tmp_path), start_copied=True), 2, 0, 1)
    assert (row["verdict"], row["asCopied"]) == ("Invalid", True)
    assert REMEDY in row["reason"]
    assert f"touch {marker}," in row["reason"] or not marker
    assert row["reason"].endswith("or accept it (checkpoint.trustTimes: false)")
    monkeypatch.setattr("lockstep.worker.checkpoints.formats.examination.TRUST_TIMES", False)
    (accepted,) = survey(settings(tmp_path), 2, 0, 1)
    assert (accepted["verdict"], accepted["reason"], accepted["asCopied"]) == ("Valid", "", False)
    assert verify_checkpoint(accepted["path"]) == ("Valid", "")


def test_what_only_its_times_speak_against_is_told_at_the_first_save(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), Launch(1, 0, 1, "10.1.0.1", 40123, "", "", []))
    copied(layouts.dcp(tmp_path / "ns/one/u1/a1/step-100"))
    for _ in range(2):  # a report may be lost
        (told,) = watch.poll().unrecognised
        assert told["path"].endswith("/step-100")
        assert told["reason"].endswith("where none are kept: checkpoint.trustTimes: false")
        assert len(told["reason"]) <= 96, "as much as a message has of each"
    layouts.age(layouts.dcp(tmp_path / "ns/one/u1/a1/step-200"))
    watch.poll()
    assert list(watch.poll().unrecognised) == [], "they are kept after all"


def test_the_verdict_by_hand_says_so_too(copy: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = copy
    codes = []
    for answer in ("yes", "no", "perhaps"):
        with pytest.raises(SystemExit) as ended:
            main(["checkpoint", "verify", str(path), f"--trust-times={answer}"])
        codes.append(int(ended.value.code or 0))
    told = capsys.readouterr()
    assert codes[:2] == [1, 0]
    assert codes[2] not in (0, 1)
    assert REMEDY in told.out


def test_the_run_hands_its_word_to_the_worker() -> None:
    environment = {
        "LOCKSTEP_OPERATOR_URL": "x", "LOCKSTEP_NAMESPACE": "ns", "LOCKSTEP_RUN": "one", "LOCKSTEP_RUN_UID": "u1",
        "LOCKSTEP_SLOT": "0", "LOCKSTEP_INCARNATION": "1", "LOCKSTEP_POD_UID": "p",
        "LOCKSTEP_CHECKPOINT_CONFIG": '{"start": {"root": "/base", "acceptCopy": true}}',
    }  # fmt: skip
    assert Settings.from_environment(environment, ["true"]).start_copied
