"""What an archive job believes of a record, and what it says at its end."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.archive import __main__ as command
from lockstep.archive.outcomes import (
    COMMAND_REFUSED,
    INTERNAL,
    SOURCE_INVALID,
    STORE_UNAVAILABLE,
    ArchiveError,
    presentable,
)
from lockstep.archive.record import DIRECTORY, FILE, ArchivedFile, ArchiveKey, Record, RecordError, decode, inside
from lockstep.archive.source import open_source
from lockstep.core.checkpoints.archive_job import parse_result

UID = "0b5c1d2e-0000-4000-8000-000000000001"
PLACE = ArchiveKey(UID, 2, 300)
TERMINATION_MESSAGE = 4096


def record(*names: str, name: str = "step-300", shape: str = DIRECTORY, **changes: Any) -> bytes:
    files = tuple(ArchivedFile(each, 1, "0" * 8, 1, ("0" * 8,)) for each in names)
    body = json.loads(Record(PLACE, name, shape, "Manifest", 1, 64, files).encode())
    return json.dumps({**body, **changes}).encode()


def test_a_record_is_read_as_it_was_written() -> None:
    names = ("rank-0.pt", "nested/größe 1.pt", "nested/größe 2.pt")
    assert {file.name for file in decode(record(*names), PLACE).files} == set(names)
    assert decode(record("a.ckpt", name="a.ckpt", shape=FILE), PLACE).shape == FILE


@pytest.mark.parametrize(
    "text",
    [
        record("../../etc/passwd"),
        record("/etc/passwd"),
        record("a/./b"),
        record("a//b"),
        record(""),
        record("a\nb"),
        record("a\x00b"),
        record("a\udc80b"),
        record("x" * 256),
        record("a", "a"),
        record("a", "a/b"),
        record("a/b/c", "a/b"),
        record("a", name=".."),
        record("a", name="a/b"),
        record("a", name="x\n"),
        record("a", name="x" * 250),
        record("a", name="b", shape=FILE),
        record("a", "b", name="a", shape=FILE),
        record("a", shape="Link"),
        record(),
        record("a", bytes=2),
        record("a", attempt=3),
        record("a", world=2**70),
        record("a").replace(b'"mtimeNs": 1', b'"mtimeNs": 99999999999999999999'),
        record("a").replace(b'"partBytes": 64', b'"partBytes": 0'),
        b"",
        b"[" * 100_000,
    ],
)
def test_a_record_that_leads_elsewhere_or_contradicts_itself_is_not_used(text: bytes) -> None:
    with pytest.raises(RecordError):
        decode(text, PLACE)


@pytest.mark.parametrize("words", ["a2/step-0300", "a02/step-300", "a٢/step-300", "a2/step-300/", "../a2/step-300"])
def test_a_checkpoint_has_one_name(words: str) -> None:
    with pytest.raises(RecordError):
        ArchiveKey.parse(UID, words)


@pytest.mark.parametrize("name", [b"two\nlines", b"no text \xff"])
def test_a_file_whose_name_no_store_takes_is_the_sources_fault(tmp_path: Path, name: bytes) -> None:
    checkpoint = tmp_path / "step-300"
    checkpoint.mkdir()
    (Path(str(checkpoint)) / name.decode(errors="surrogateescape")).write_bytes(b"")
    with pytest.raises(ArchiveError, match="bad file name") as refusal:
        open_source(checkpoint, run_uid=UID)
    assert refusal.value.reason is SOURCE_INVALID


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "error sending request for url (https://acct.blob.core.windows.net/c/a?sv=1&sig=SECRET%3D): timed out",
            "error sending request for url (https://acct.blob.core.windows.net/c/a?…): timed out",
        ),
        ("no route to https://user:SECRET@minio:9000/b/x", "no route to https://minio:9000/b/x"),
        ("two\nlines", "two lines"),
    ],
)
def test_what_opens_a_door_is_not_told(said: str, told: str) -> None:
    assert presentable(said) == told


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀", "\x01", "\n", '"', "\\", "\udc80"])
def test_the_last_words_of_a_job_fit_and_can_be_read_whatever_they_are(
    letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ArchiveError(STORE_UNAVAILABLE, letter * 5000)

    monkeypatch.setattr(command, "upload", fail)
    monkeypatch.setattr(command, "_die_on_sigterm", lambda *_: None)
    told = tmp_path / "told"
    arguments = ["--run-uid", UID, "--uri", "s3://b", "--checkpoint", "a2/step-300", "--source", "/x"]
    assert command.main(["upload", *arguments, "--result", str(told)]) == STORE_UNAVAILABLE.exit_code
    assert len(told.read_bytes()) <= TERMINATION_MESSAGE
    result = parse_result(told.read_text())
    assert result is not None
    assert result.outcome == STORE_UNAVAILABLE.word


def test_an_error_nobody_thought_of_is_told_without_what_opens_a_door(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = command._failure(INTERNAL, "OSError: GET https://h/x?X-Amz-Signature=SECRET failed")
    assert "SECRET" not in json.dumps(reason)


def test_a_name_is_told_in_few_words() -> None:
    with pytest.raises(RecordError) as refusal:
        inside("../" * 10_000)
    assert len(str(refusal.value)) < 400


def test_an_image_that_does_not_know_an_option_says_so_as_the_jobs_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_RESULT_FILE", str(tmp_path / "log"))
    code = command.main(["list", "--uri=s3://bucket", "--run-uid", UID, "--of-a-newer-operator=1"])
    said = parse_result((tmp_path / "log").read_text())
    assert said is not None
    assert (code, said.outcome) == (COMMAND_REFUSED.exit_code, "CommandRefused")
    assert said.message.startswith("unrecognized arguments: --of-a-newer-operator=1; this image has Lockstep ")
    assert said.message.endswith("set the operator's archive.image to the operator's own image")
