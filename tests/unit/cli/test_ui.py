"""`lockstep ui`: how the browser gets to the page, and what becomes of the token."""

import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.waiting import wait_for
from lockstep.cli.client import Cluster
from lockstep.cli.commands import ui
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.main import main


def cluster(value: str | None) -> Cluster:
    settings = {} if value is None else {"BearerToken": {"value": value}}
    return Cluster(SimpleNamespace(configuration=SimpleNamespace(auth_settings=lambda: settings)), "default")


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Something that is called kubectl and writes down how."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/called\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "called"


@pytest.mark.parametrize(
    ("value", "token"), [("Bearer abc.def", "abc.def"), ("bearer abc", "abc"), ("Basic abc", ""), (None, "")]
)
def test_the_token_is_that_of_the_context(value: str | None, token: str) -> None:
    assert cluster(value).token() == token


def test_the_token_reaches_the_browser_by_a_file_that_others_cannot_read_and_that_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Path] = []

    def browser(address: str) -> bool:
        door = Path(address.removeprefix("file://"))
        opened.append(door)
        assert stat.S_IMODE(door.parent.stat().st_mode) == 0o700
        assert "https://web.example/ui/#token=a%2Bb%22%3E.c" in door.read_text()
        return True

    monkeypatch.setattr(ui.webbrowser, "open", browser)
    with ui.opened("https://web.example/", cluster('Bearer a+b">.c')):
        assert len(opened) == 1
    assert not opened[0].exists()
    said = capsys.readouterr()
    assert "https://web.example/ui/" in said.err
    assert "token=" not in said.err + said.out


def test_who_signs_in_by_certificate_is_told_to_paste_a_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ui.webbrowser, "open", lambda address: False)
    with ui.opened("https://web.example", cluster(None)):
        pass
    said = capsys.readouterr().err
    assert "kubectl create token" in said
    assert "No browser" in said


@pytest.mark.process
def test_the_port_is_forwarded_by_kubectl_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Forwarding from 127.0.0.1:40123 -> 8090"
    called = kubectl(tmp_path, monkeypatch, f'echo "{line}"; exec sleep 600')
    with ui.forwarded("ops", "pod/op-1", "prod", "/kube/config") as (port, process):
        assert port == 40123
        words = called.read_text()
        assert "port-forward --namespace ops --address 127.0.0.1 pod/op-1 :8090" in words
        assert "--context=prod --kubeconfig=/kube/config" in words
    assert process.wait(timeout=20) is not None


@pytest.mark.process
def test_what_kubectl_refuses_is_told_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, monkeypatch, 'echo "error: deployments.apps not found" >&2; exit 1')
    with pytest.raises(CliError, match="not found") as refused, ui.forwarded("ops", ui.OPERATOR, "", None):
        pass
    assert "--url" in refused.value.remedy


@pytest.mark.process
def test_without_kubectl_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CliError, match="kubectl cannot be run"), ui.forwarded("ops", ui.OPERATOR, "", None):
        pass


class Leases:
    """A cluster of which the operator's lease alone is asked for."""

    context = "prod"

    def __init__(self, *holders: str | CliError) -> None:
        self.holders = list(holders)

    def get(self, path: str) -> dict[str, object]:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/ops/leases/lockstep-operator"
        holder = self.holders.pop(0)
        if isinstance(holder, CliError):
            raise holder
        return {"spec": {"holderIdentity": holder}}


@pytest.mark.parametrize(
    ("holder", "target"),
    [
        ("lockstep-operator-6d9f-x2x-1a2b3c4d", "pod/lockstep-operator-6d9f-x2x"),
        ("", ui.OPERATOR),
        (ApiServerError(403, "leases is forbidden"), ui.OPERATOR),
    ],
    ids=["somebody leads", "nobody leads", "the lease may not be read"],
)
def test_the_port_leads_to_the_leader_where_it_can_be_known(holder: str | CliError, target: str) -> None:
    assert ui.leader(cast(Cluster, Leases(holder)), "ops") == target


@pytest.fixture
def page() -> Iterator[int]:
    """The port of something that answers as the page does."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/ui/" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.process
def test_the_page_stays_where_it_is_when_another_replica_takes_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setattr(ui, "AGAIN", 0.01)
    script = f"""echo "$@" >> {calls}
case $(wc -l < {calls}) in
    2) echo "error: pod not found" >&2; exit 1;;
    3) kill -INT $PPID;;
esac
echo "Forwarding from 127.0.0.1:{page} -> 8090"
[ $(wc -l < {calls}) = 3 ] && exec sleep 600"""
    kubectl(tmp_path, monkeypatch, script)
    opened: list[int] = []
    leases = cast(Cluster, Leases("op-a-1", "op-a-1", "op-b-2"))
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells ignore it for what runs in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            ui.keep_forwarded(leases, "ops", None, opened.append)
    finally:
        signal.signal(signal.SIGINT, before)
    assert opened == [page]
    ways = [line.split("127.0.0.1 ")[1] for line in calls.read_text().splitlines()]
    there = "--context=prod"  # although no flag names it: the token is of that cluster
    assert ways == [f"pod/op-a :8090 {there}", f"pod/op-a {page}:8090 {there}", f"pod/op-b {page}:8090 {there}"]
    assert "looked for again" in capsys.readouterr().err


@pytest.mark.process
def test_an_operator_that_does_not_come_back_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(ui, "AGAIN", 0.01)
    monkeypatch.setattr(ui, "PATIENCE", 0.2)
    said = f'"Forwarding from 127.0.0.1:{page} -> 8090"'
    kubectl(
        tmp_path, monkeypatch, f"[ -e {tmp_path}/gone ] || {{ touch {tmp_path}/gone; echo {said}; exit 0; }}; exit 1"
    )
    with pytest.raises(CliError, match="no port could be forwarded"):
        ui.keep_forwarded(cast(Cluster, Leases(*[""] * 1000)), "ops", None, lambda _: None)


@pytest.mark.process
def test_an_operator_that_is_no_pod_is_told_from_one_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, """echo 'Error from server (NotFound): pods "vm" not found' >&2; exit 1""")
    with pytest.raises(CliError, match="the operator that leads, vm, is no pod of namespace ops") as refused:
        ui.keep_forwarded(cast(Cluster, Leases("vm-1a2b")), "ops", None, lambda _: None)
    assert "--url" in refused.value.remedy


@pytest.mark.process
def test_an_operator_without_a_page_is_told_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    kubectl(tmp_path, monkeypatch, f'echo "Forwarding from 127.0.0.1:{port} -> 8090"; exec sleep 600')
    with pytest.raises(CliError, match="serves no page") as refused:
        ui.keep_forwarded(cast(Cluster, Leases("")), "ops", None, lambda _: pytest.fail("nothing to open"))
    assert "web.enabled=true" in refused.value.remedy


@pytest.mark.process
def test_what_kubectl_says_of_every_connection_never_holds_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    much = "head -c 100000 /dev/zero | tr '\\0' 'x'"
    talk = f"for i in 1 2 3 4; do {much}; {much} >&2; done"
    kubectl(
        tmp_path,
        monkeypatch,
        f'echo "Forwarding from 127.0.0.1:1 -> 8090"; {talk}; touch {tmp_path}/told; exec sleep 600',
    )
    with ui.forwarded("ops", ui.OPERATOR, "", None):
        wait_for("kubectl has said it all", (tmp_path / "told").exists, seconds=20)


def test_the_verb_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["ui", "--help"])
    assert "--operator-namespace" in capsys.readouterr().out
