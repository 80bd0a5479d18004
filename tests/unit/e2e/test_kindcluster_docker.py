"""What a cluster of containers makes on a Docker daemon, whose it may be, and what of that it removes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kindcluster import images, site
from kindcluster.cluster import KindCluster
from kindcluster.docker import Docker
from kindcluster.errors import KindClusterError
from localcluster import build

OURS = {"DOCKER_HOST": "unix:///run/lockstep-kind/docker.sock"}


@dataclass(frozen=True)
class FakeDocker(Docker):
    """A daemon with networks, containers on the network `kind`, and images; it notes what is asked of it."""

    networks: list[str] = field(default_factory=lambda: ["bridge", "host"])
    attached: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    registry: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __call__(self, *arguments: str | Path) -> str:
        words = " ".join(map(str, arguments))
        self.said.append(words)
        if words.startswith("network ls"):
            return "\n".join(self.networks)
        if words.startswith("network rm"):
            self.networks.remove(words.split()[-1])
        if words.startswith("ps"):
            return "\n".join(self.attached)
        if words.startswith("images --quiet"):
            return "abc" if words.split()[-1] in self.names else ""
        if words.startswith("images"):
            return "\n".join(self.names)
        return ""

    def pull(self, name: str) -> bool:
        return name in self.registry


def created(folder: Path, docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> KindCluster:
    """A cluster that is up, by a kind that makes its network where there is none."""

    def kind(self: KindCluster, *arguments: str | Path) -> None:
        if arguments[0] == "create" and "kind" not in docker.networks:
            docker.networks.append("kind")

    monkeypatch.setattr(KindCluster, "_kind", kind)
    monkeypatch.setattr(KindCluster, "kubectl", lambda *_: "")
    monkeypatch.setattr(build, "binary", lambda name: folder)  # there is one
    made = KindCluster(docker, folder)
    made.create("node", lambda line: None)
    return made


@pytest.mark.process
def test_the_network_that_kind_made_for_us_goes_also_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = FakeDocker({}, tmp_path)
    created(tmp_path, docker, monkeypatch)
    site.take_down(docker, tmp_path)
    assert docker.networks == ["bridge", "host"]


@pytest.mark.process
def test_a_network_that_was_there_before_stays_on_the_users_docker_and_on_ours_none_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = FakeDocker({}, tmp_path, networks=["kind"])
    created(tmp_path, users, monkeypatch)
    site.take_down(users, tmp_path)
    assert users.networks == ["kind"]
    ours = FakeDocker(OURS, tmp_path, networks=["kind"])
    created(tmp_path, ours, monkeypatch)
    site.take_down(ours, tmp_path)
    assert ours.networks == []


@pytest.mark.process
def test_a_network_of_ours_stays_as_long_as_containers_of_others_are_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = FakeDocker({}, tmp_path, attached=["theirs-control-plane"])
    created(tmp_path, docker, monkeypatch)
    site.take_down(docker, tmp_path)
    assert docker.networks == ["bridge", "host", "kind"]
    docker.attached.clear()
    created(tmp_path, docker, monkeypatch)
    site.take_down(docker, tmp_path)
    assert docker.networks == ["bridge", "host"]


@pytest.mark.process
def test_that_the_network_is_ours_is_on_record_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = FakeDocker({}, tmp_path)

    def killed(self: KindCluster, *arguments: str | Path) -> None:
        if arguments[0] == "create":
            docker.networks.append("kind")
            raise KindClusterError("killed")

    monkeypatch.setattr(KindCluster, "_kind", killed)
    with pytest.raises(KindClusterError, match="killed"):
        KindCluster(docker, tmp_path).create("node", lambda line: None)
    site.take_down(docker, tmp_path)
    assert docker.networks == ["bridge", "host"]


@pytest.mark.process
def test_a_network_that_cannot_be_removed_keeps_nothing_else_from_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = FakeDocker({}, tmp_path)
    made = created(tmp_path, docker, monkeypatch)

    def fails(self: FakeDocker, *arguments: str | Path) -> str:
        raise KindClusterError("has active endpoints")

    monkeypatch.setattr(FakeDocker, "__call__", fails)
    with pytest.raises(KindClusterError, match="has active endpoints"):
        site.take_down(docker, tmp_path)
    assert not made.shared.exists()


NAMES = [
    "lockstep-node:v1.36.3-000000000000",
    "lockstep-node:v1.36.3-111111111111",
    "lockstep-debian:trixie",
    "lockstep-routes:1",
    "lockstep-training:000000000000",
    "lockstep-operator:0.7.2",
    "lockstep-operator:000000000000",
    "lockstep-something:of-theirs",
    "postgres:17",
    "<none>:<none>",
]


def test_of_the_users_docker_only_what_is_named_by_our_digests_goes_and_none_that_somebody_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = FakeDocker({}, tmp_path, names=NAMES)
    images.prune(docker, NAMES[1])
    assert docker.said[1:] == [f"image rm {NAMES[number]}" for number in (0, 4, 6)]

    def in_use(self: FakeDocker, *arguments: str | Path) -> str:
        if arguments[:2] == ("image", "rm"):
            raise KindClusterError("container abc is using it")
        return "\n".join(NAMES)

    monkeypatch.setattr(FakeDocker, "__call__", in_use)
    images.prune(docker, NAMES[1])


def test_of_our_own_docker_all_goes_that_is_not_in_use_now(tmp_path: Path) -> None:
    docker = FakeDocker(OURS, tmp_path, names=NAMES)
    images.prune(docker, NAMES[1])
    gone = " ".join(name for name in NAMES if name not in (NAMES[1], "lockstep-debian:trixie", "<none>:<none>"))
    assert docker.said[1:] == [f"image rm {gone}", "image prune --force"]


def test_a_minimal_debian_comes_from_a_registry_where_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.os, "geteuid", lambda: 1000)
    docker = FakeDocker({}, tmp_path, registry=["debian:bookworm-slim"])
    assert images.debian(docker, "bookworm", tmp_path, lambda line: None) == "debian:bookworm-slim"
    docker.names.append("lockstep-debian:bookworm")
    assert images.debian(docker, "bookworm", tmp_path, lambda line: None) == "lockstep-debian:bookworm"


def test_a_mirror_of_debian_that_is_named_is_preferred_to_a_registry_by_who_can_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def makes_it(*_: object, **__: object) -> None:
        raise KindClusterError("debootstrap")

    monkeypatch.setattr(images, "install", makes_it)
    monkeypatch.setenv("LOCKSTEP_DEBIAN_MIRROR", "https://mirror.example/debian")
    docker = FakeDocker({}, tmp_path, registry=["debian:trixie-slim"])
    monkeypatch.setattr(images.os, "geteuid", lambda: 1000)
    assert images.debian(docker, "trixie", tmp_path, lambda line: None) == "debian:trixie-slim"
    monkeypatch.setattr(images.os, "geteuid", lambda: 0)
    with pytest.raises(KindClusterError, match="debootstrap"):
        images.debian(docker, "trixie", tmp_path, lambda line: None)


def test_who_is_not_root_is_told_which_image_to_bring_where_no_registry_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.os, "geteuid", lambda: 1000)
    with pytest.raises(
        KindClusterError, match=r"debian:trixie-slim, and only root .* `docker pull debian:trixie-slim`"
    ):
        images.debian(FakeDocker({}, tmp_path), "trixie", tmp_path, lambda line: None)
