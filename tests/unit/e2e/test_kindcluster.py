"""What a cluster of containers is made of, and what is put back when it goes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.proc import is_alive
from harness.waiting import wait_for
from kindcluster import __main__ as main
from kindcluster import docker, host, images, leftovers, node_image, site, sysctls
from kindcluster.cluster import KindCluster
from kindcluster.commands import Report
from kindcluster.docker import Docker
from kindcluster.ended_early import ends_like_an_error
from kindcluster.errors import KindClusterError
from localcluster.build import REPOSITORY

SAVED = """\
*filter
:INPUT ACCEPT [1:2]
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:theirs - [0:0]
-A FORWARD -j DOCKER
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT
-A FORWARD -i br-lan -j ACCEPT
-A theirs -j RETURN
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 172.18.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 172.20.0.0/16 -j MASQUERADE
COMMIT
"""


def test_dockers_rules_go_and_everybody_elses_stay() -> None:
    assert (
        host.without_dockers_rules(SAVED, forward="ACCEPT")
        == """\
*filter
:INPUT ACCEPT [1:2]
:FORWARD ACCEPT [0:0]
:theirs - [0:0]
-A FORWARD -i br-lan -j ACCEPT
-A theirs -j RETURN
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 172.20.0.0/16 -j MASQUERADE
COMMIT
"""
    )


def test_beside_somebody_elses_docker_sysctls_are_put_back_and_all_of_dockers_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysctls, "ROOT", tmp_path)
    monkeypatch.setattr(host, "_remove_what_docker_made", lambda before: pytest.fail("those are not ours"))
    for name in ("kernel.panic", "vm.overcommit_memory"):
        sysctls.path_of(name).parent.mkdir()
        sysctls.path_of(name).write_text("0\n")
    changes = host.HostChanges(tmp_path / "run" / "host.json")
    changes.record(daemon_is_ours=False)
    changes.set("kernel.panic", "10")
    host.HostChanges(changes.record_file).record(daemon_is_ours=True)  # as after a crash: how it was before counts
    changes.undo()
    assert sysctls.read() == {"kernel.panic": "0", "vm.overcommit_memory": "0"}
    assert not changes.record_file.exists()


def test_the_image_is_resolved_by_the_uv_of_the_makefile() -> None:
    assert f"ARG UV_VERSION={images.uv_version()}\n" in (REPOSITORY / "Dockerfile").read_text()


def test_packages_are_taken_from_the_mirrors_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> tuple[str | None, list[str | Path]]:
        arguments = images._arguments(Docker({}, tmp_path), "base", REPOSITORY, "revision")
        return arguments.get("PIP_INDEX_URL"), images.debootstrap("trixie", tmp_path)[4:]

    monkeypatch.setattr(images, "for_builds", lambda docker, image: image)
    index, mirror = "https://mirror.example/simple", "https://mirror.example/debian"
    for name in ("PIP_INDEX_URL", "LOCKSTEP_DEBIAN_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    assert asked() == (None, [])
    monkeypatch.setenv("PIP_INDEX_URL", index)
    monkeypatch.setenv("LOCKSTEP_DEBIAN_MIRROR", mirror)
    assert asked() == (index, [mirror])


def test_the_image_has_nothing_from_an_index_but_what_the_lock_names_by_hash() -> None:
    steps = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    installing = [step for step in steps if "uv pip install" in step]
    assert len(installing) == 2
    assert all("--default-index ${PIP_INDEX_URL}" in step for step in installing)
    assert all("--require-hashes" in step or step.endswith(" --no-deps .") for step in installing)


def test_the_pod_network_of_a_node_made_here_runs_from_an_image_that_is_put_into_it() -> None:
    manifest = (REPOSITORY / "e2e/kindcluster/node/default-cni.yaml").read_text()
    [daemon_set] = [each for each in yaml.safe_load_all(manifest) if each["kind"] == "DaemonSet"]
    assert daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] == node_image.ROUTES


@pytest.mark.process
def test_what_a_killed_daemon_left_running_below_its_folder_ends_with_all_it_started(tmp_path: Path) -> None:
    sleeper = (
        f"import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input() # {tmp_path}/x"
    )
    theirs = subprocess.Popen([sys.executable, "-c", "input()", f"{tmp_path}-beside/x"], stdin=subprocess.PIPE)
    left = subprocess.Popen([sys.executable, "-c", sleeper], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert left.stdout is not None
        child = int(left.stdout.readline())
        leftovers.clear(tmp_path)
        wait_for("both are gone", lambda: not is_alive(left.pid) and not is_alive(child), seconds=20)
        assert theirs.poll() is None
        assert not tmp_path.exists()
    finally:
        for process in (theirs, left):
            process.kill()
            process.communicate()


@pytest.mark.process
def test_who_clears_up_is_spared_whatever_is_in_its_command_line(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from kindcluster import leftovers; leftovers.clear(Path(sys.argv[1]))"
    path = os.pathsep.join(str(REPOSITORY / folder) for folder in ("operator", "e2e"))
    through = ["sh", "-c", f"{sys.executable} -c '{code}' {tmp_path} # {tmp_path}/x"]
    subprocess.run(through, env={**os.environ, "PYTHONPATH": path}, check=True)


def test_mounts_go_from_the_innermost_out_and_the_daemons_own_folder_is_one() -> None:
    table = "".join(f"none {point} tmpfs rw 0 0\n" for point in ("/", "/d", "/d/a", "/d/a/b", "/d-2", "/e/d"))
    assert leftovers.mounted_at(Path("/d"), table) == ["/d/a/b", "/d/a", "/d"]


def test_too_small_a_disk_is_told_of_before_anything_is_made(tmp_path: Path) -> None:
    host.require_free(tmp_path, 0)
    with pytest.raises(KindClusterError, match=rf"GB are free where {tmp_path} is, and 1000000 are needed: make room"):
        host.require_free(tmp_path, 1_000_000)


def told_to_end_three_times(put_back: list[str]) -> None:
    with ends_like_an_error() as from_now_on_ignored:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            from_now_on_ignored()
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            put_back.append("all")


def test_who_is_told_to_end_often_puts_everything_back_once() -> None:
    before, put_back = signal.getsignal(signal.SIGTERM), list[str]()
    with pytest.raises(KindClusterError, match="ended by SIGTERM"):
        told_to_end_three_times(put_back)
    assert put_back == ["all"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_is_first_told_to_end_while_everything_is_put_back_finishes_that() -> None:
    put_back = []
    with ends_like_an_error() as from_now_on_ignored:
        from_now_on_ignored()
        os.kill(os.getpid(), signal.SIGINT)
        put_back.append("all")
    assert put_back == ["all"]


class ADaemon(docker.Daemon):
    """Answers, and notes when it is stopped."""

    def found(self) -> Docker:
        return Docker({}, self.folder)

    def found_or_started(self, report: Report) -> Docker:
        return self.found()

    def stop(self) -> None:
        done.append("stopped")


done: list[str] = []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_cluster_that_is_to_stay_up_is_taken_down_where_it_was_ended_before_it_was(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done.clear()
    monkeypatch.setattr(docker, "Daemon", ADaemon)
    monkeypatch.setattr(site, "bring_up", lambda *_: os.kill(os.getpid(), number))
    monkeypatch.setattr(site, "take_down", lambda *_: done.append("taken down"))
    with pytest.raises(KindClusterError, match=f"ended by {number.name}"):
        main._up(tmp_path, argparse.Namespace())
    assert done == ["taken down", "stopped"]


def test_a_cluster_that_came_up_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    monkeypatch.setattr(docker, "Daemon", ADaemon)
    monkeypatch.setattr(site, "bring_up", lambda running, folder, _: KindCluster(running, folder))
    assert main._up(tmp_path, argparse.Namespace()) == 0
    assert done == []


def test_building_an_image_ends_with_all_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    monkeypatch.setattr(docker, "Daemon", ADaemon)
    monkeypatch.setattr(ADaemon, "_found_or_installed", lambda *_: Docker({}, tmp_path))
    monkeypatch.setattr(docker, "_RUN", tmp_path / "run")
    monkeypatch.setattr(images, "base", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(KindClusterError, match="ended by SIGTERM"):
        main._image(tmp_path, argparse.Namespace())
    assert done[-1] == "stopped"


def test_beside_a_daemon_that_came_with_its_package_sysctls_are_put_back_and_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []
    monkeypatch.setattr(docker, "install", lambda *_, **__: installed.append("docker.io"))
    monkeypatch.setattr(docker, "_answers", lambda environment: bool(installed) and not environment)
    monkeypatch.setattr(docker, "_CHANGES", tmp_path / "host.json")
    monkeypatch.setattr(docker.shutil, "which", lambda program: f"/usr/bin/{program}" if installed else None)
    monkeypatch.setattr(docker.Daemon, "_docker", lambda self, environment: Docker(environment, self.folder))
    monkeypatch.setattr(docker.os, "geteuid", lambda: 0)
    monkeypatch.setattr(sysctls, "ROOT", tmp_path)
    sysctls.path_of("kernel.panic").parent.mkdir()
    sysctls.path_of("kernel.panic").write_text("1")
    assert not docker.Daemon(tmp_path).found_or_started(lambda line: None).is_ours
    recorded = json.loads((tmp_path / "host.json").read_text())
    assert recorded["sysctls"] == {"kernel.panic": "1"}
    assert "docker" not in recorded
