"""What `make playground` is made of, as far as it takes no cluster to look at it."""

from __future__ import annotations

import itertools
import os
import socket
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from harness.shown_commands import ROOT
from localcluster.errors import LocalClusterError
from localcluster.simworker import Training
from localcluster.simworkers import training_of
from lockstep.core.model.reasons import Outcome, Phase
from playground import doors
from playground.__main__ import REAL, SAMPLES, SIMULATED
from playground.doors import Doors, rights_or_reenter
from playground.guide import Guide
from support.typed_page import Typed, files_on, type_all, typed_on

SHOWN = [document for file in SAMPLES for document in yaml.safe_load_all(file.read_text())]
RUNS = [each for each in SHOWN if each["kind"] == "TrainingRun"]


def test_there_are_runs_in_every_state_and_an_array() -> None:
    states = Counter(run["metadata"]["labels"]["shows"] for run in RUNS)
    assert states.keys() == {
        *map(str, (Phase.PENDING, Phase.RUNNING, Phase.SUSPENDED)),
        Outcome.FAILED,
        Outcome.SUCCEEDED,
    }
    assert states[Phase.PENDING] >= 4
    assert [each["metadata"]["name"] for each in SHOWN if each["kind"] == "TrainingRunSet"] == ["lr"]


def test_simulated_nodes_are_of_the_teams_and_real_ones_of_who_plays() -> None:
    selected = {q["metadata"]["name"]: q["spec"]["nodeSelector"] for q in SHOWN if q["kind"] == "TrainingQueue"}
    assert {name for name, labels in selected.items() if labels == SIMULATED.labels} == {"language", "vision"}
    assert all(node.labels == selected["default"] for node in REAL)
    assert all(run["spec"]["queue"] == run["metadata"]["namespace"] for run in RUNS)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run["metadata"]["name"]))
def test_what_a_sample_pretends_to_train_is_what_simulated_workers_know(run: dict[str, Any]) -> None:
    pod = {"spec": {"containers": [{"env": run["spec"].get("env", [])}]}}
    training = training_of(pod, Training())
    wanted = run["metadata"]["labels"]["shows"]
    seconds = training.total_steps * training.step_seconds
    if wanted == Phase.RUNNING:
        assert seconds > 24 * 3600
    elif wanted == Outcome.SUCCEEDED:
        assert seconds < 10
    assert training.fails_in(1) == (wanted == Outcome.FAILED)


def test_a_pod_that_says_nothing_trains_what_all_do() -> None:
    usual = Training(total_steps=7)
    assert training_of({"spec": {"containers": [{}]}}, usual) == usual


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"inside")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.process
def test_a_door_leads_from_a_socket_of_the_outside_to_a_server_inside() -> None:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        inside = f"http://127.0.0.1:{server.server_port}"
        assert Doors().lead_to(inside) == inside
        outside = Doors([socket.create_server(("127.0.0.1", 0))]).lead_to(inside)
        assert outside != inside
        with urllib.request.urlopen(outside, timeout=10) as answer:
            assert answer.read() == b"inside"
        server.shutdown()


@pytest.mark.parametrize(
    ("there", "said"),
    [({"ip", "unshare"}, "nsenter, setpriv not found: install iproute2 and util-linux"), (set(), "ip, nsenter")],
)
def test_what_is_missing_is_named_with_what_brings_it(
    there: set[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors.shutil, "which", lambda name: name if name in there else None)
    with pytest.raises(LocalClusterError, match=said):
        rights_or_reenter("", ())


def test_who_gets_no_namespaces_is_told_where_to_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise doors.ProcessNodesError("no")

    monkeypatch.setattr(doors.shutil, "which", lambda name: name)
    monkeypatch.setattr(doors, "check_rights", refused)
    monkeypatch.setattr(doors, "_APART", ("sh", "-c", "echo Operation not permitted >&2; false"))
    with pytest.raises(LocalClusterError, match=r"user namespaces.*README\.md#rights.*: Operation not permitted"):
        rights_or_reenter("", ())


def test_what_is_to_be_sourced_and_clicked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_BUILD_DIR", str(tmp_path / "a b"))
    guide = Guide({"kind": "Config"}, "http://127.0.0.1:1", "secret", tmp_path)
    guide.write()
    folder = tmp_path / "a b" / "playground"
    assert "http://127.0.0.1:1/ui/#token=secret" in guide.words()
    assert "secret" not in (folder / "env").read_text()
    assert {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir()} == {"env": 0, "kubeconfig": 0}


def test_the_tutorial_is_found_whole() -> None:
    page = ROOT / "docs" / "first-hour.md"
    assert files_on(page).keys() == {"train.py", "claim.yaml", "first.yaml"}
    text = page.read_text()
    assert len(typed_on(page)) == text.count("\n$ ")
    named = {word for each in typed_on(page) for word in each.command.split() if word.endswith((".py", ".yaml"))}
    assert {word.rpartition("=")[2] for word in named} == files_on(page).keys()


@pytest.mark.process
def test_the_folder_that_the_tutorial_takes_along_is_its_own_and_not_the_checkout(tmp_path: Path) -> None:
    page, home, checkout = ROOT / "docs" / "first-hour.md", tmp_path / "home", tmp_path / "checkout"
    home.mkdir()
    (checkout / ".build" / "playground").mkdir(parents=True)
    (checkout / ".build" / "playground" / "env").write_text("lockstep() { :; }; kubectl() { :; }\n")
    first, *rest = [Typed(each.command, ()) for each in typed_on(page)]
    assert first.command == "make playground"
    before = [*itertools.takewhile(lambda each: "--code ." not in each.command, rest)]
    assert before != rest
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    assert type_all([*before, Typed("pwd", ())], checkout, environment, 60)[-1] == f"{home / 'first-hour'}\n"


@pytest.mark.parametrize(
    ("shown", "output", "missing"),
    [
        ((), "anything", ""),
        (("a is Pending…",), "a is Pending (Resources)\nmore", ""),
        (("a is Pending…",), "b\na is Running", "a is Pending…"),
        (("b", "a"), "a\nb", "a"),
        (("a", "b"), "a\nother\nb", ""),
        (("…x…y",), "1 x  2 y", ""),
        (("x y",), "x    y", ""),
        (("a.b",), "axb", "a.b"),
    ],
)
def test_shown_lines_are_looked_for_in_their_order(shown: tuple[str, ...], output: str, missing: str) -> None:
    assert Typed("", shown).missing(output) == missing
