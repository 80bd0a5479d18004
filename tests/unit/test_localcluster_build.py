"""Which programs are built, at which version, and when again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localcluster import build
from localcluster.errors import BuildError

GO_MOD = """
module tools

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.6.7

require (
\tk8s.io/kubernetes v1.36.3
\tk8s.io/kubernetes-extra v0.1.0 // indirect
)

replace k8s.io/api => k8s.io/api v0.36.3
"""


@pytest.fixture
def empty_build_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_BUILD_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("module", "version"),
    [
        ("k8s.io/kubernetes", "1.36.3"),
        ("k8s.io/kubernetes-extra", "0.1.0"),
        ("go.etcd.io/etcd/server/v3", "3.6.7"),
    ],
)
def test_the_version_is_the_one_the_module_requires(module: str, version: str) -> None:
    assert build.required_version(GO_MOD, module) == version


def test_a_module_that_is_not_required_has_no_version() -> None:
    with pytest.raises(LookupError, match=r"k8s\.io/api is not required"):
        build.required_version(GO_MOD, "k8s.io/api")


@pytest.mark.parametrize(
    "program",
    [*build.PROGRAMS, build.KIND, *build.NODE_PROGRAMS, *build.MONITORING],
    ids=lambda program: program.name,
)
def test_every_program_has_a_pinned_version_and_is_a_tool_of_its_module(program: build.Program) -> None:
    go_mod = (build.TOOLS / program.module / "go.mod").read_text()
    assert build.version(program)
    assert program.package in go_mod


def test_kubernetes_is_linked_with_its_version() -> None:
    [apiserver] = [program for program in build.PROGRAMS if program.name == "kube-apiserver"]
    flags = build.link_flags(apiserver, "1.36.3")
    assert "version.gitVersion=v1.36.3" in flags
    assert "version.gitMajor=1 " in flags
    assert "version.gitMinor=36 " in flags


def test_a_program_is_current_only_with_the_stamp_of_its_module(empty_build_dir: Path) -> None:
    program = build.PROGRAMS[0]
    assert not build.is_current(program)

    for folder in ("bin", "stamps"):
        (empty_build_dir / folder).mkdir()
    build.binary(program.name).touch()
    assert not build.is_current(program)

    recorded = empty_build_dir / "stamps" / program.name
    recorded.write_text(build.stamp(program))
    assert build.is_current(program)

    recorded.write_text("of another version")
    assert not build.is_current(program)


def test_without_go_the_message_says_where_to_get_it(empty_build_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_build_dir))
    with pytest.raises(BuildError, match=r"https://go\.dev/dl"):
        build.build_all(report=lambda _: None)


def test_a_failed_build_shows_the_last_lines_of_the_compiler(
    empty_build_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = empty_build_dir / "go"
    go.write_text("#!/bin/sh\necho 'undefined: frobnicate' >&2\nexit 2\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{empty_build_dir}:/usr/bin:/bin")
    said: list[str] = []
    with pytest.raises(BuildError, match=r"(?s)etcd failed \(exit code 2.*undefined: frobnicate"):
        build.build_all(report=said.append)
    assert said[0].startswith("building etcd 3.")
    assert not build.is_current(build.PROGRAMS[0])


def test_what_is_built_is_kept_out_of_git() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "-q", build.REPOSITORY / ".build" / "bin"], cwd=build.REPOSITORY, check=False
    )
    assert ignored.returncode == 0
