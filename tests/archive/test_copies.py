"""Checkpoints go to a real S3 server and come back, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.object_store import RUN_UID, S3Server, job_command, job_environment, run_job, save
from lockstep.archive import catalog, outcomes
from lockstep.archive.outcomes import ArchiveError
from lockstep.archive.record import ArchiveKey
from lockstep.archive.restore import restore
from lockstep.archive.store import ObjectStore
from lockstep.archive.upload import upload
from lockstep.core.model.worker_report import Verdict
from lockstep.worker.checkpoints import formats
from lockstep.worker.checkpoints.tiers import attempt_steps

MIB = 1 << 20
PLACE = ArchiveKey(RUN_UID, 2, 300)
FILES = {"rank-0.pt": os.urandom(3 * MIB + 17), "nested/rank-1.pt": os.urandom(MIB), "empty": b""}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "shared" / RUN_UID / "a2" / "step-300", FILES)


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def refused(reason: outcomes.FailureReason) -> pytest.RaisesExc[ArchiveError]:
    return pytest.RaisesExc(ArchiveError, check=lambda error: error.reason is reason)


def test_a_checkpoint_comes_back_as_it_was_to_the_byte_and_the_second(
    store: ObjectStore, checkpoint: Path, tmp_path: Path
) -> None:
    copied = upload(store, checkpoint, PLACE, part_bytes=MIB)
    assert copied.moved == copied.record.size
    restored = restore(store, PLACE, tmp_path / "other" / RUN_UID / "a0")
    assert restored.path == tmp_path / "other" / RUN_UID / "a0" / "step-300"
    assert contents(restored.path) == contents(checkpoint)
    finding = formats.examine(str(restored.path), run_uid=RUN_UID, step=300)
    assert finding is not None
    assert finding.verdict == formats.VALID
    assert [path.name for path in restored.path.parent.iterdir()] == ["step-300"]


def test_times_that_a_file_server_gave_are_forgiven_on_the_way_back_as_on_the_way_there(
    store: ObjectStore, checkpoint: Path, tmp_path: Path
) -> None:
    committed = (checkpoint / "manifest.json").stat().st_mtime
    os.utime(checkpoint / "rank-0.pt", (committed + 1.5, committed + 1.5))
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    target = tmp_path / "other" / RUN_UID / "a0"
    first = restore(store, PLACE, target)
    assert contents(first.path) == contents(checkpoint)
    assert restore(store, PLACE, target).already


def test_what_is_published_already_is_not_sent_again(store: ObjectStore, checkpoint: Path) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    again = upload(store, checkpoint, PLACE, part_bytes=MIB)
    assert again.already
    assert again.moved == 0


def test_lost_parts_of_a_published_checkpoint_are_sent_again(
    server: S3Server, store: ObjectStore, checkpoint: Path, prefix: str
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    lost = next(path for name, path in server.objects(f"{prefix}/").items() if "rank-1.pt" in name)
    lost.unlink()
    assert catalog.entries(store, RUN_UID)[0].verdict is Verdict.INVALID
    assert upload(store, checkpoint, PLACE, part_bytes=MIB).moved == MIB
    assert catalog.entries(store, RUN_UID)[0].verdict is Verdict.VALID


def test_a_killed_upload_goes_on_with_the_parts_that_are_missing(
    server: S3Server, store: ObjectStore, uri: str, prefix: str, tmp_path: Path
) -> None:
    total = 24 * MIB
    checkpoint = save(tmp_path / "step-300", {"large.pt": os.urandom(total)})
    arguments = ["--uri", uri, "--checkpoint", "a2/step-300", "--source", checkpoint, "--part-size", "1MiB"]
    command = job_command(server, "upload", *arguments, "--bandwidth", "2MiB", "--parallel", "2")
    with subprocess.Popen(command, env=job_environment(), stdout=subprocess.DEVNULL) as victim:
        parts = wait_for_parts(server, prefix, 6)
        victim.kill()
    before = {name: path.stat().st_ino for name, path in server.objects(f"{prefix}/").items()}
    assert len(parts) <= len(before) < 24
    assert not any(name.endswith(".json") for name in before), "published before it was complete"

    again = run_job(server, "upload", *arguments)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout.splitlines()[-1])
    stored = server.objects(f"{prefix}/")
    assert result["skipped"] == sum(stored[name].stat().st_size for name in before)
    assert result["moved"] + result["skipped"] == result["checkpoint"]["bytes"]
    after = {name: path.stat().st_ino for name, path in server.objects(f"{prefix}/").items()}
    assert {name: after[name] for name in before} == before, "parts that were there were written again"
    restored = restore(store, PLACE, tmp_path / "back")
    assert contents(restored.path) == contents(checkpoint)


def wait_for_parts(server: S3Server, prefix: str, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        parts = [name for name in server.objects(f"{prefix}/") if "/data/" in name]
        if len(parts) >= count:
            return parts
        time.sleep(0.02)
    raise AssertionError("no parts arrive")


def test_a_terminated_upload_says_that_it_can_go_on(server: S3Server, uri: str, prefix: str, tmp_path: Path) -> None:
    checkpoint = save(tmp_path / "step-300", {"large.pt": os.urandom(24 * MIB)})
    arguments = ["--uri", uri, "--checkpoint", "a2/step-300", "--source", checkpoint, "--part-size", "1MiB"]
    result = tmp_path / "result"
    command = job_command(server, "upload", *arguments, "--bandwidth", "2MiB", "--result", result)
    with subprocess.Popen(command, env=job_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        wait_for_parts(server, prefix, 1)
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == outcomes.INTERRUPTED.exit_code
    assert json.loads(result.read_text())["retryable"] is True


def test_of_two_uploaders_at_once_both_succeed_and_one_publishes(
    store: ObjectStore, checkpoint: Path, tmp_path: Path
) -> None:
    copies: list[object] = []

    def copy() -> None:
        copies.append(upload(store, checkpoint, PLACE, part_bytes=MIB))

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(copies) == 2
    assert contents(restore(store, PLACE, tmp_path / "back").path) == contents(checkpoint)


def test_another_checkpoint_is_never_published_in_the_place_of_one(
    store: ObjectStore, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = save(tmp_path / "other" / "step-300", {"rank-0.pt": os.urandom(MIB)})
    get = store.get
    answers = [None]  # to the question whether it is published: both ask before either publishes

    def first_time_none(name: str, most: int) -> bytes | None:
        return answers.pop() if answers else get(name, most)

    upload(store, checkpoint, PLACE, part_bytes=MIB)
    monkeypatch.setattr(store, "get", first_time_none)
    with refused(outcomes.CONFLICT):
        upload(store, other, PLACE, part_bytes=MIB)
    assert contents(restore(store, PLACE, tmp_path / "back").path) == contents(checkpoint)


def test_a_source_that_changes_meanwhile_is_not_published(
    store: ObjectStore, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.put

    def put_and_touch(name: str, body: bytes) -> None:
        put(name, body)
        (checkpoint / "empty").write_bytes(b"")

    monkeypatch.setattr(store, "put", put_and_touch)
    with refused(outcomes.SOURCE_INVALID):
        upload(store, checkpoint, PLACE, part_bytes=MIB)
    assert catalog.entries(store, RUN_UID)[0].verdict is Verdict.INVALID


def test_a_source_with_other_bytes_than_its_manifest_says_is_not_published(
    store: ObjectStore, checkpoint: Path
) -> None:
    path = checkpoint / "rank-0.pt"
    found = path.stat()
    body = bytearray(path.read_bytes())
    body[MIB] ^= 1
    path.write_bytes(body)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with refused(outcomes.SOURCE_INVALID) as raised:
        upload(store, checkpoint, PLACE, part_bytes=MIB)
    assert "its manifest says" in str(raised.value)
    assert store.get(PLACE.record, MIB) is None


def test_an_uncommitted_source_is_refused_before_anything_is_sent(store: ObjectStore, checkpoint: Path) -> None:
    (checkpoint / "manifest.json").unlink()
    with refused(outcomes.SOURCE_INVALID):
        upload(store, checkpoint, PLACE)
    assert catalog.entries(store, RUN_UID) == ()


def test_a_source_that_vanishes_is_told_apart(store: ObjectStore, tmp_path: Path) -> None:
    with refused(outcomes.SOURCE_VANISHED):
        upload(store, tmp_path / "nothing", PLACE)


def test_a_corrupted_object_is_not_restored(
    server: S3Server, store: ObjectStore, checkpoint: Path, prefix: str, tmp_path: Path
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    part = next(path for name, path in server.objects(f"{prefix}/").items() if "rank-0.pt/00001" in name)
    body = bytearray(part.read_bytes())
    body[7] ^= 1
    part.write_bytes(body)
    with refused(outcomes.ARCHIVE_CORRUPT):
        restore(store, PLACE, tmp_path / "back")
    assert not (tmp_path / "back" / "step-300").exists()


def test_a_missing_object_is_found_before_anything_is_fetched(
    server: S3Server, store: ObjectStore, checkpoint: Path, prefix: str, tmp_path: Path
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    next(path for name, path in server.objects(f"{prefix}/").items() if "rank-0.pt/00001" in name).unlink()
    with refused(outcomes.ARCHIVE_CORRUPT):
        restore(store, PLACE, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_restore_goes_on_with_what_is_right_on_the_disk(
    store: ObjectStore, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = upload(store, checkpoint, PLACE, part_bytes=MIB)
    get, fetched = store.get, []

    def die_in_mid_file(name: str, most: int) -> bytes | None:
        fetched.append(name)
        if len(fetched) > 6:  # the record, three small files, two of the large one's parts
            raise ArchiveError(outcomes.STORE_UNAVAILABLE, "gone")
        return get(name, most)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", die_in_mid_file)
        with refused(outcomes.STORE_UNAVAILABLE):
            restore(store, PLACE, tmp_path / "back", parallel=1)
    assert not (tmp_path / "back" / "step-300").exists()
    again = restore(store, PLACE, tmp_path / "back")
    assert again.skipped >= 3 * MIB
    assert again.moved + again.skipped == copied.record.size
    assert contents(again.path) == contents(checkpoint)


def test_a_restored_checkpoint_is_left_alone_the_second_time(
    store: ObjectStore, checkpoint: Path, tmp_path: Path
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    restore(store, PLACE, tmp_path / "back")
    again = restore(store, PLACE, tmp_path / "back")
    assert again.already


def lose_a_file(there: Path) -> None:
    (there / "rank-0.pt").unlink()


def lose_all(there: Path) -> None:
    shutil.rmtree(there)
    there.mkdir()


def change_a_byte(there: Path) -> None:
    path = there / "rank-0.pt"
    before = path.stat()
    with path.open("r+b") as stream:
        first = stream.read(1)
        stream.seek(0)
        stream.write(bytes([first[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("damage", [lose_a_file, lose_all, change_a_byte])
def test_a_damaged_save_gives_its_name_to_the_copy_of_it_and_is_kept_where_nobody_takes_it_for_one(
    store: ObjectStore, checkpoint: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    there = tmp_path / "all" / "step-300"
    shutil.copytree(checkpoint, there)
    damage(there)
    left = contents(there)
    assert contents(restore(store, PLACE, there.parent).path) == contents(checkpoint)
    assert contents(there.parent / "step_300.lockstep-invalid-0") == left
    assert [step for step, _, _ in attempt_steps(str(there.parent), 0)] == [300]
    assert restore(store, PLACE, there.parent).already


@pytest.mark.parametrize("uid", [RUN_UID, "ffffffff-0000-4000-8000-000000000002"])
def test_a_whole_save_of_somebody_else_or_of_another_attempt_keeps_its_name(
    store: ObjectStore, checkpoint: Path, tmp_path: Path, uid: str
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    there = save(tmp_path / "shared" / "step-300", {n: bytes(len(b)) for n, b in FILES.items()}, attempt=3, uid=uid)
    before = contents(there)
    with refused(outcomes.DESTINATION_TAKEN):
        restore(store, PLACE, there.parent)
    assert contents(there) == before


def test_a_checkpoint_of_the_same_name_and_size_is_not_taken_for_the_one_that_is_wanted(
    store: ObjectStore, checkpoint: Path, tmp_path: Path
) -> None:
    earlier = save(tmp_path / "shared" / RUN_UID / "a1" / "step-300", {n: bytes(len(b)) for n, b in FILES.items()})
    for place, path in ((PLACE, checkpoint), (ArchiveKey(RUN_UID, 1, 300), earlier)):
        upload(store, path, place, part_bytes=MIB)
    restore(store, ArchiveKey(RUN_UID, 1, 300), tmp_path / "back")
    with refused(outcomes.DESTINATION_TAKEN):
        restore(store, PLACE, tmp_path / "back")


def test_what_another_restore_left_under_the_name_is_no_part_of_the_checkpoint(
    store: ObjectStore, checkpoint: Path, tmp_path: Path
) -> None:
    upload(store, checkpoint, PLACE, part_bytes=MIB)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x")
    (tmp_path / "outside").mkdir()
    left = tmp_path / "back" / ".step-300.restoring" / "step-300"
    left.mkdir(parents=True)
    (left / "rank-7.pt").write_bytes(b"of a larger gang")
    (left / "rank-0.pt").symlink_to(elsewhere)
    (left / "nested").symlink_to(tmp_path / "outside")
    assert contents(restore(store, PLACE, tmp_path / "back").path) == contents(checkpoint)
    assert elsewhere.read_bytes() == b"x"
    assert list((tmp_path / "outside").iterdir()) == []


def test_an_object_larger_than_it_may_be_is_not_read_into_memory(store: ObjectStore) -> None:
    store.put("large", b"x" * MIB)
    assert store.get("large", MIB) == b"x" * MIB
    with refused(outcomes.ARCHIVE_CORRUPT):
        store.get("large", MIB - 1)


def test_nothing_published_is_nothing_to_restore(store: ObjectStore, tmp_path: Path) -> None:
    with refused(outcomes.NOT_PUBLISHED):
        restore(store, PLACE, tmp_path / "back")


def test_an_outage_of_the_server_is_sat_out(server: S3Server, uri: str, prefix: str, tmp_path: Path) -> None:
    checkpoint = save(tmp_path / "step-300", {"large.pt": os.urandom(24 * MIB)})
    arguments = ["--uri", uri, "--checkpoint", "a2/step-300", "--source", checkpoint, "--part-size", "1MiB"]
    command = job_command(server, "upload", *arguments, "--bandwidth", "4MiB")
    with subprocess.Popen(command, env=job_environment(), stdout=subprocess.DEVNULL) as job:
        wait_for_parts(server, prefix, 2)
        server.stop()
        time.sleep(1.0)
        assert job.poll() is None
        server.start()
        assert job.wait(120) == 0
    assert any(name.endswith("lockstep-archive.json") for name in server.objects(f"{prefix}/"))


@pytest.mark.parametrize(
    ("environment", "bucket", "reason"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "golden", outcomes.CREDENTIALS_REFUSED),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "golden", outcomes.CREDENTIALS_REFUSED),
        ({}, "no-such-bucket", outcomes.BUCKET_MISSING),
    ],
)
def test_what_a_person_has_to_mend_is_named_and_not_tried_again(
    server: S3Server,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    bucket: str,
    reason: outcomes.FailureReason,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    arguments = ["--uri", f"s3://{bucket}/x", "--checkpoint", "a2/step-300", "--source", checkpoint]
    ended = run_job(server, "upload", *arguments)
    assert ended.returncode == reason.exit_code
    told = json.loads(ended.stderr.splitlines()[-1])
    assert told["outcome"] == reason.word
    assert told["retryable"] is False
    assert "Debug source" not in told["message"]


def test_an_unreachable_server_is_tried_again(server: S3Server, checkpoint: Path) -> None:
    server.stop()
    arguments = ["--uri", "s3://golden/x", "--checkpoint", "a2/step-300", "--source", checkpoint]
    ended = run_job(server, "upload", *arguments, "--retry-seconds", "1")
    assert ended.returncode == outcomes.STORE_UNAVAILABLE.exit_code
    assert json.loads(ended.stderr.splitlines()[-1])["retryable"] is True
