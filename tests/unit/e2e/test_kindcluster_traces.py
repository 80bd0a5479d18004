"""What a cluster of containers changes on the machine: how it is put back, and how it is seen that it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kindcluster import host, sysctls, traces
from kindcluster.errors import KindClusterError
from localcluster.build import REPOSITORY

WITH_ITS_OWN_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
FORWARDING = """
from kindcluster import sysctls

def write(name, value):
    sysctls.path_of(name).write_text(value)

write("net.ipv4.conf.all.accept_redirects", "0")
write("net.ipv4.ip_forward", "0")
write("net.ipv6.conf.all.forwarding", "0")
write("net.ipv4.conf.all.accept_redirects", "0")
write("net.ipv4.conf.default.forwarding", "1")
write("net.ipv6.conf.lo.forwarding", "1")
before = sysctls.read()
write("net.ipv4.ip_forward", "1")
write("net.ipv6.conf.all.forwarding", "1")
changed = {name for name, value in sysctls.read().items() if value != before[name]}
assert "net.ipv6.conf.default.forwarding" in changed and "net.ipv4.conf.lo.forwarding" in changed, changed
sysctls.put_back(before)
assert sysctls.read() == before
"""


@pytest.mark.process
def test_forwarding_is_put_back_whole_though_the_kernel_sets_all_of_it_at_once() -> None:
    if subprocess.run([*WITH_ITS_OWN_NETWORK, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a network namespace, and so user namespaces or root")
    path = os.pathsep.join(str(REPOSITORY / folder) for folder in ("operator", "e2e"))
    code = [*WITH_ITS_OWN_NETWORK, sys.executable, "-c", FORWARDING]
    subprocess.run(code, env={**os.environ, "PYTHONPATH": path}, check=True)


def a_kernel(root: Path, **values: str) -> None:
    """Files as those of /proc/sys; `__` parts their names."""
    for name, value in values.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "sys"
    monkeypatch.setattr(sysctls, "ROOT", root)
    return root


def test_what_a_kernel_lacks_is_neither_read_nor_put_back(kernel: Path) -> None:
    a_kernel(kernel, kernel__panic="1", net__ipv4__conf__all__forwarding="0")
    (kernel / "net/ipv4/conf/eth0.7").mkdir()
    (kernel / "net/ipv4/conf/eth0.7/forwarding").write_text("1")
    before = sysctls.read()
    assert before == {
        "net.ipv4.conf.all.forwarding": "0",
        "net.ipv4.conf.eth0/7.forwarding": "1",  # as sysctl(8) writes it
        "kernel.panic": "1",
    }
    (kernel / "kernel/panic").write_text("10")
    (kernel / "net/ipv4/conf/eth0.7/forwarding").unlink()
    sysctls.put_back(before)
    assert sysctls.read() == {"net.ipv4.conf.all.forwarding": "0", "kernel.panic": "1"}


def test_all_that_kubelet_docker_and_the_systemd_of_a_node_set_is_put_back() -> None:
    of_kubelet = {"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops"}
    of_kubelet |= {"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes"}
    of_docker = {"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.bridge.bridge-nf-call-iptables"}
    of_systemd = {"fs.file-max", "fs.nr_open", "kernel.pid_max"}
    of_systemd |= {f"fs.protected_{what}" for what in ("fifos", "hardlinks", "regular", "symlinks")}
    assert of_kubelet | of_docker | of_systemd <= set(sysctls.CHANGED)


@pytest.mark.process
def test_bridged_packets_pass_unfiltered_again_where_docker_loaded_the_module_that_filters_them(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_remove_what_docker_made", lambda before: None)
    a_kernel(kernel, kernel__panic="1")
    changes = host.HostChanges(tmp_path / "run" / "host.json")
    changes.record(daemon_is_ours=True)
    a_kernel(kernel, **{"net__bridge__bridge-nf-call-iptables": "1"})
    changes.undo()
    assert sysctls.read() == {"net.bridge.bridge-nf-call-iptables": "0", "kernel.panic": "1"}


@pytest.mark.process
def test_folders_that_docker_made_go_when_nobody_else_put_anything_there(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_remove_what_docker_made", lambda before: None)
    kept, made, used = (tmp_path / name for name in ("kept", "made", "used"))
    monkeypatch.setattr(host, "DOCKERS_FOLDERS", (kept, made, used))
    kept.mkdir()
    changes = host.HostChanges(tmp_path / "run" / "host.json")
    changes.record(daemon_is_ours=True)
    for folder in (made / "plugins", used / "plugins"):
        folder.mkdir(parents=True)
    (used / "config.json").touch()
    changes.undo()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name in ("kept", "made", "used")) == ["kept", "used"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"sysctl a": "0"}, {"sysctl a": "0"}, []),
        ({"sysctl a": "0"}, {"sysctl a": "1"}, ["sysctl a: 0 before, 1 now"]),
        ({}, {"sysctl a": "1"}, []),  # with a link or a module, which is told of itself
        ({}, {"link docker0": ""}, ["link docker0: new"]),
        ({"mount /d": ""}, {}, ["mount /d: gone"]),
    ],
)
def test_what_differs_is_named(before: dict[str, str], after: dict[str, str], said: Sequence[str]) -> None:
    assert traces.differences(before, after) == said


def test_of_sysctls_those_are_compared_that_can_be_set_but_not_those_that_the_kernel_or_a_link_sets(
    kernel: Path,
) -> None:
    a_kernel(
        kernel,
        vm__swappiness="60",
        fs__file_nr="1",
        kernel__ns_last_pid="7",
        vm__min_free_kbytes="45000",
        dev__cdrom__info="0",
        net__ipv6__conf__default__mtu="1280",
        net__ipv6__conf__wlan0__mtu="1500",
        net__ipv6__conf__wlan0__forwarding="0",
        fs__binfmt_misc__status="enabled",  # a look at it may mount it
    )
    (kernel / "fs/file_nr").chmod(0o444)
    assert set(traces.sysctls_seen()) == {
        "vm.swappiness",
        "net.ipv6.conf.default.mtu",
        "net.ipv6.conf.wlan0.forwarding",
    }


TABLE = "none /d/kind/x tmpfs rw 0 0\nnone /home tmpfs rw 0 0\nnone /var/lib/docker/x tmpfs rw 0 0\n"
SAVED = """\
# Generated
*nat
:POSTROUTING ACCEPT [7:8]
-A POSTROUTING -s 172.20.0.0/16 -j MASQUERADE
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
COMMIT
*mangle
:FORWARD ACCEPT [0:0]
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
COMMIT
"""


def test_mounts_and_rules_are_compared_where_they_may_be_dockers_or_ours() -> None:
    assert traces.mounts_seen(TABLE, [Path("/d/kind")]) == ["/d/kind/x", "/var/lib/docker/x"]
    assert traces.rules_seen(SAVED) == {
        "nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE": "",
        "filter policy of FORWARD": "DROP",
        "filter :DOCKER": "",
    }


def test_what_is_left_is_told_and_an_error_also_when_something_else_was_wrong_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [{}, {"link docker0": ""}] * 2
    monkeypatch.setattr(traces, "seen", lambda *_, **__: looks.pop(0))
    said: list[str] = []
    with pytest.raises(KindClusterError, match="not as it was before: link docker0: new"), none_left(said):
        pass
    with pytest.raises(ZeroDivisionError), none_left(said):
        raise ZeroDivisionError
    assert said == ["left behind: link docker0: new"] * 2


def none_left(said: list[str]):  # type: ignore[no-untyped-def]
    return traces.none_left(Path(), Path(), daemon_is_ours=True, report=said.append)


def test_the_policy_is_put_back_in_the_table_where_docker_changes_it() -> None:
    mangle = "*mangle\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
    saved = mangle + "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
    assert host.without_dockers_rules(saved, forward="DROP") == mangle + saved.removeprefix(mangle).replace(
        ":FORWARD ACCEPT", ":FORWARD DROP"
    )


def test_the_rule_by_which_a_container_reaches_its_own_published_port_is_dockers() -> None:
    hairpin = "-A POSTROUTING -s 172.18.0.4/32 -d 172.18.0.4/32 -p tcp -m tcp --dport 6443 -j MASQUERADE\n"
    assert host.without_dockers_rules(hairpin, forward="ACCEPT") == ""
