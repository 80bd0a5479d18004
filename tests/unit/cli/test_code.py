"""Code from a directory: what goes along, what stays behind, and how a run finds it."""

from __future__ import annotations

import base64
import errno
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.main import main
from lockstep.cli.submission import code, packing
from lockstep.cli.submission.flags import Flags
from lockstep.cli.submission.packing import IN_A_CONFIG_MAP, pack
from support.cli_server import CliServer


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A directory as people have them."""
    files = {
        "train.py": b"print('hello')\n",
        "model/net.py": b"x = 1\n",
        "vocab.bin": b"\xff\x00",
        ".git/config": b"secret",
        ".env": b"TOKEN=1",
        "__pycache__/train.pyc": b"\x00",
        "data/large.bin": b"0" * (IN_A_CONFIG_MAP.size + 1),
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    return tmp_path


def test_sources_go_along_and_what_stays_behind_is_named(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = pack(str(program))
    assert [name for name, _ in packed.files] == ["model/net.py", "train.py", "vocab.bin"]
    assert dict(packed.left_out) == {
        ".env": "is made, or hidden",
        ".git": "is made, or hidden",
        "__pycache__": "is made, or hidden",
        "data/large.bin": "1.0 MB, too large",
        "link.py": "is a link, or no plain file",
    }
    code.tell(packed, "here")
    said = capsys.readouterr().err
    assert "3 files of here" in said
    assert "Left out: .env (is made, or hidden), " in said


def test_a_directory_that_cannot_be_read_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if os.path.basename(path) == "model":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert ("model", "cannot be read (Permission denied)") in pack(str(program)).left_out


def test_the_object_holds_text_as_text_and_the_run_has_each_file_at_its_path(program: Path) -> None:
    packed = pack(str(program))
    made = code.config_map(packed, "train")
    assert made["data"] == {"file-000": "x = 1\n", "file-001": "print('hello')\n"}
    assert base64.b64decode(made["binaryData"]["file-002"]) == b"\xff\x00"
    spec: dict[str, Any] = {"image": "X", "command": ["python", "train.py"], "nodes": 1}
    code.mount(spec, packed, "train-code-abcde")
    assert spec["workingDir"] == "/code"
    [volume] = spec["volumes"]
    assert volume["mountPath"] == "/code"
    [source] = volume["projected"]["sources"]
    assert source["configMap"]["items"][0] == {"key": "file-000", "path": "model/net.py"}
    TrainingRunSpec.model_validate(spec)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: None, "holds no file that could go along"),
        (lambda root: (root / "a.py").write_bytes(b"#" * (IN_A_CONFIG_MAP.size + 1)), "more than a ConfigMap holds"),
        (
            lambda root: [(root / f"m{n}.py").write_text("1") for n in range(IN_A_CONFIG_MAP.files + 1)],
            f"{IN_A_CONFIG_MAP.files + 1} source files",
        ),
    ],
)
def test_code_that_does_not_fit_is_refused_whole(tmp_path: Path, make: Any, words: str) -> None:
    make(tmp_path)
    with pytest.raises(CliError, match=words):
        pack(str(tmp_path))


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.jsonl", "vocab.json"])
def test_a_large_text_is_data_and_keeps_no_program_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("1")
    (tmp_path / "requirements.txt").write_text("torch")
    (tmp_path / name).write_bytes(b"a" * (IN_A_CONFIG_MAP.size + 1))
    packed = pack(str(tmp_path))
    assert [path for path, _ in packed.files] == ["requirements.txt", "train.py"]
    assert packed.left_out == [(name, "1.0 MB, too large")]


def test_many_small_lists_of_records_are_data_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1")
    for n in range(IN_A_CONFIG_MAP.files):
        (tmp_path / f"{n}.jsonl").write_text("{}")
    packed = pack(str(tmp_path))
    assert (len(packed.files), len(packed.left_out)) == (IN_A_CONFIG_MAP.files, 1)


def test_small_texts_that_do_not_fit_together_are_refused_as_programs_are(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.yaml").write_bytes(b"a" * 256 * 1024)
    with pytest.raises(CliError, match="4 source files"):
        pack(str(tmp_path))


def test_a_home_directory_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_SEEN", 3)
    for n in range(9):
        (tmp_path / f"{n}.txt").write_text("x")
    with pytest.raises(CliError, match="more than 3 files"):
        pack(str(tmp_path))


def test_what_is_no_directory_is_a_mistake_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        pack(str(tmp_path / "nope"))


def test_a_path_is_not_mounted_twice(program: Path) -> None:
    spec = {"volumes": [{"name": "x", "mountPath": "/code/"}]}
    with pytest.raises(UsageError, match="both want /code"):
        code.mount(spec, pack(str(program)), "x")


def test_a_volume_of_another_that_is_called_as_the_one_for_code_is_refused_and_not_dropped(program: Path) -> None:
    run = manifest()
    mine = {"name": "code", "mountPath": "/workspace", "persistentVolumeClaim": {"claimName": "mine"}}
    run["spec"]["volumes"] = [mine]
    with pytest.raises(UsageError, match=r"spec\.volumes has another one of that name"):
        code.packed_for([run], str(program))
    assert run["spec"]["volumes"] == [mine]


def test_a_claim_called_code_is_mounted_beside_the_code(program: Path) -> None:
    run = Flags(image="X", volumes=["code:/data"], command=["true"]).manifest("hello")
    packed = code.packed_for([run], str(program))
    with code.sent_along(CliServer(), run, packed, dry_run=False, keep=True):
        mine, carried = run["spec"]["volumes"]
    assert (mine["mountPath"], mine["persistentVolumeClaim"]) == ("/data", {"claimName": "code"})
    assert carried["mountPath"] == "/code"
    assert mine["name"] != carried["name"]


def test_volumes_that_make_no_sense_are_left_for_others_to_refuse(program: Path) -> None:
    for volumes in (["data", {"mountPath": "/data"}], "data"):
        run = manifest()
        run["spec"]["volumes"] = volumes
        packed = code.packed_for([run], str(program))
        with code.sent_along(CliServer(), run, packed, dry_run=False, keep=True):
            assert run["spec"]["volumes"][: len(volumes)] == volumes


def test_a_client_dry_run_prints_what_kubectl_would_apply(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(
            ["submit", "--code", str(program), "--image", "X", "--name", "hello", "--dry-run=client", "--", "train.py"]
        )
    config_map, run = yaml.safe_load_all(capsys.readouterr().out)
    assert config_map["metadata"]["name"] == "hello-code"
    [source] = run["spec"]["volumes"][0]["projected"]["sources"]
    assert source["configMap"]["name"] == "hello-code"
    assert run["spec"]["command"] == ["python", "train.py"]


def owners(server: CliServer) -> list[str]:
    [made] = server.objects.values()
    return [owner["uid"] for owner in made["metadata"]["ownerReferences"]]


def manifest() -> dict[str, Any]:
    about = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun"}
    return {**about, "metadata": {"name": "hello"}, "spec": {"nodes": 1}}


def test_the_code_goes_with_the_run_that_mounts_it(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server, run = CliServer(), manifest()
    packed = code.packed_for([run], str(program))
    with code.sent_along(server, run, packed, dry_run=False, keep=True) as sent:
        sent.needed = True
        run["metadata"] |= {"uid": "u", "namespace": "team"}
        code.adopt(server, run, sent)
    made = server.objects["configmaps/hello-code-00000"]
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "name": "hello", "uid": "u"}
    ]
    again = run | {"metadata": {"name": "hello", "uid": "v"}}
    code.adopt(server, again, sent)
    assert owners(server) == ["u", "v"], "a run that takes it over"


@pytest.mark.parametrize(("keep", "fails"), [(False, False), (True, True)])
def test_nothing_stays_where_no_run_came_of_it(program: Path, keep: bool, fails: bool) -> None:
    server, run = CliServer(), manifest()
    packed = code.packed_for([run], str(program))
    refusal = CliError("refused")

    def create() -> None:
        with code.sent_along(server, run, packed, dry_run=False, keep=keep):
            assert server.objects
            if fails:
                raise refusal

    if fails:
        with pytest.raises(CliError, match="refused"):
            create()
    else:
        create()
    assert not server.objects


def test_the_code_outlives_a_run_that_is_deleted_for_the_next_one(program: Path) -> None:
    server, run = CliServer(), manifest()
    packed = code.packed_for([run], str(program))
    with code.sent_along(server, run, packed, dry_run=False, keep=True) as sent:
        sent.needed = True
        run["metadata"] |= {"uid": "u", "namespace": "team"}
        code.adopt(server, run, sent)
    code.adopt(server, run | {"metadata": {"name": "another", "uid": "w"}}, code.Sent())
    held: code.Owners = []
    code.hold_on_to(server, run, held)
    assert owners(server) == [], "it would go with the old run"
    code.adopt(server, run | {"metadata": {"name": "hello", "uid": "v"}}, code.Sent())
    code.give_back(server, held, but="u")
    assert owners(server) == ["v", "w"], "of the new one, and of another that mounts it"


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_run_that_only_asks_leaves_the_code_of_another_as_it_is(program: Path, is_kept: bool) -> None:
    server, run = CliServer(), manifest()
    packed = code.packed_for([run], str(program))
    with code.sent_along(server, run, packed, dry_run=False, keep=True) as sent:
        sent.needed = True
        run["metadata"] |= {"uid": "u", "namespace": "team"}
        code.adopt(server, run, sent)
    if is_kept:  # by a retry that was cut off before it made the new run
        code.hold_on_to(server, run, [])
    before, asks = owners(server), {names.ANNOTATION_TEST_ONLY: "true"}
    code.adopt(server, run | {"metadata": {"name": "hello-test-x", "uid": "v", "annotations": asks}}, code.Sent())
    assert owners(server) == before


def test_code_that_goes_along_anew_takes_the_place_of_what_did_before(program: Path) -> None:
    server, run = CliServer(), manifest()
    packed = code.packed_for([run], str(program))
    with code.sent_along(server, run, packed, dry_run=False, keep=True):
        pass
    code.packed_for([run], str(program))
    [volume] = run["spec"]["volumes"]
    assert volume["projected"]["sources"][0]["configMap"]["name"] == "hello-code", "that is yet to get its name"
