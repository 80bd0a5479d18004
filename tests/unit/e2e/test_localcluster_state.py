"""State on disk, processes by pid and start time, certificates, and the calls of the components."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from harness.waiting import wait_for
from localcluster import certificates, control_plane, kubeconfig, processes, state
from localcluster.errors import LocalClusterError
from localcluster.processes import ProcessRecord

PORTS = {name: 20000 + index for index, name in enumerate(state.PORT_NAMES)}


def layout(directory: Path, bind: str | None = None) -> state.Layout:
    return state.Layout(directory, bind, PORTS)


@pytest.mark.parametrize("large", [False, True])
def test_thousands_of_simulated_nodes_are_quiet_only_where_that_is_asked_for(tmp_path: Path, large: bool) -> None:
    made = state.new_layout(tmp_path, None, large=large)
    assert state.decode(state.encode(state.ClusterState(made, {})), tmp_path).layout.large is large
    calls = [argument for each in control_plane.COMPONENTS.values() for argument in each.arguments(made)]
    assert ("--node-lease-duration-seconds=2400" in calls) is large
    assert ("--node-monitor-grace-period=2400s" in calls) is large
    assert bool(control_plane.environment(made)) is large
    assert set(control_plane.LARGE).issubset(control_plane.settings(made)) is large


def test_removal_keeps_logs_and_whatever_is_not_ours(tmp_path: Path) -> None:
    here = layout(tmp_path)
    state.save(state.ClusterState(here, {}))
    for folder in (here.etcd_data, here.pki, here.kubeconfigs, tmp_path / "logs", tmp_path / "mine"):
        folder.mkdir()
    state.remove(here)
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "mine"}


def test_nothing_is_removed_from_a_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(LocalClusterError, match="refusing"):
        state.remove(layout(tmp_path))


def test_ports_are_distinct_and_out_of_the_way_of_the_kernel_and_of_node_ports() -> None:
    ports = state.free_ports(state.PORT_NAMES)
    assert ports.keys() == set(state.PORT_NAMES)
    assert len(set(ports.values())) == len(state.PORT_NAMES)
    assert all(port in range(18000, 30000) for port in ports.values())


@pytest.mark.parametrize("program", ["python3", "a (b) c)", "x) S 1 2"])
def test_a_stat_line_is_read_whatever_the_program_is_called(program: str) -> None:
    before_start_time = " ".join(str(field) for field in range(4, 22))
    assert processes.parse_stat(f"17 ({program}) S {before_start_time} 98765 0 0") == ("S", 98765)


def test_a_process_is_known_by_pid_and_start_time_and_boot() -> None:
    me = processes.this_process()
    assert processes.is_alive(me)
    for other in (
        ProcessRecord(me.pid, me.start_ticks + 1, me.boot_id),
        ProcessRecord(me.pid, me.start_ticks, "another boot"),
    ):
        assert not processes.is_alive(other)
        processes.send(other, 9)  # must not reach us


@pytest.mark.process
def test_a_spawned_process_has_its_own_session_and_ends_when_told(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "spawned.log"
    program = "import os, time; print(os.getsid(0) == os.getpid(), flush=True); time.sleep(60)"
    record = processes.spawn([sys.executable, "-c", program], log, os.environ)
    try:
        while not log.read_text().endswith("\n"):  # which may be a write of its own
            assert processes.is_alive(record)
        assert log.read_text() == "True\n"
    finally:
        processes.end([record], grace=5)
    assert not processes.is_alive(record)


@pytest.mark.process
def test_a_process_deaf_to_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    log = tmp_path / "deaf.log"
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    record = processes.spawn([sys.executable, "-c", program], log, os.environ)
    while not log.read_text():
        assert processes.is_alive(record)
    processes.end([record], grace=0.1)
    assert not processes.is_alive(record)


def test_components_do_not_inherit_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    assert not [name for name in state.component_environment() if name.lower().endswith("_proxy")]


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    certificates.write_all(tmp_path)
    assert {key.stat().st_mode & 0o777 for key in tmp_path.glob("*.key")} == {0o600}


def test_a_kubernetes_client_certificate_opens_no_door_to_etcd(tmp_path: Path) -> None:
    certificates.write_all(tmp_path)
    etcd_authority = x509.load_pem_x509_certificate((tmp_path / "etcd-ca.crt").read_bytes())
    admin = x509.load_pem_x509_certificate((tmp_path / "admin.crt").read_bytes())
    client = x509.load_pem_x509_certificate((tmp_path / "etcd-client.crt").read_bytes())
    client.verify_directly_issued_by(etcd_authority)
    with pytest.raises(ValueError, match="does not match"):
        admin.verify_directly_issued_by(etcd_authority)


def test_a_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("authority")
    path = tmp_path / "kubeconfigs" / "reader.yaml"
    kubeconfig.write(path, kubeconfig.with_token("https://127.0.0.1:1", tmp_path / "ca.crt", "secret"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": "secret"}


@pytest.mark.parametrize("component", control_plane.COMPONENTS.values(), ids=lambda c: c.name)
def test_every_component_listens_on_loopback_only(component: control_plane.Component, tmp_path: Path) -> None:
    arguments = component.arguments(layout(tmp_path))
    assert not [argument for argument in arguments if "0.0.0.0" in argument]
    assert [argument for argument in arguments if "127.0.0.1" in argument]


def test_only_the_api_server_is_reachable_from_elsewhere_and_only_when_asked(tmp_path: Path) -> None:
    opened = {
        name
        for name, component in control_plane.COMPONENTS.items()
        if "--bind-address=0.0.0.0" in component.arguments(layout(tmp_path, "10.1.2.3"))
    }
    assert opened == {"kube-apiserver"}


@pytest.mark.parametrize("name", ["kube-scheduler", "kube-controller-manager"])
def test_request_limits_are_those_that_are_stated(name: str, tmp_path: Path) -> None:
    arguments = control_plane.component_named(name).arguments(layout(tmp_path))
    assert f"--kube-api-qps={control_plane.CLIENT_QPS}" in arguments
    assert any(str(control_plane.CLIENT_QPS) in setting for setting in control_plane.SETTINGS)


@pytest.mark.process
def test_a_process_that_was_frozen_stands_still_with_all_of_its_threads() -> None:
    record = processes.spawn([sys.executable, "-c", BUSY], Path(os.devnull), os.environ)
    try:
        wait_for("its threads run", lambda: len(threads(record.pid)) == 5, seconds=20)
        for _ in range(20):
            processes.freeze(record)
            assert set(threads(record.pid)) == {"T"}
            processes.send(record, signal.SIGCONT)
    finally:
        processes.end([record], grace=0)


def threads(pid: int) -> list[str]:
    """The state of each."""
    return [processes.parse_stat(stat.read_text())[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]


BUSY = """
import hashlib, threading
def work():
    while True:
        hashlib.sha256(bytes(1 << 20))
for _ in range(4):
    threading.Thread(target=work).start()
"""
