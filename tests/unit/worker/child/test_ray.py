"""What the worker runs on a node of Ray: real processes, with a stand-in for Ray."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.fake_operator import FakeOperator
from harness.proc import children, names
from harness.running_worker import LaunchWorker, RunningWorker, ready
from harness.waiting import wait_for
from lockstep.worker.child import ray_node
from lockstep.worker.child.process import LaunchError
from lockstep.worker.child.ray_node import RAY_NODE, RayNode
from lockstep.worker.child.scratch import make_scratch
from lockstep.worker.launchers import ray
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch
from support.fake_ray import FakeRay

pytestmark = pytest.mark.process

SECONDS = 60.0
DRIVER = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"saves\\n"), time.sleep(0.3), os._exit(7)))
print(json.dumps(dict(os.environ)), flush=True)
time.sleep(60)
"""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeRay]:
    made = FakeRay(tmp_path)
    yield made
    made.end()


def settings(scratch: Path, **more: str) -> Settings:
    return Settings(
        "https://127.0.0.1:1", "team", "hello", "u", 0, 1, "p", ["train"], launcher="Ray", scratch=str(scratch), **more
    )


LAUNCH = Launch(3, 1, 4, "10.1.0.1", 20123, "", "", [], dashboard="10.1.0.1:20124", token="s" * 64)


def test_the_driver_is_told_where_its_ray_is_and_all_which_token_it_asks_for() -> None:
    made = ray.environment(settings(Path("/run/lockstep")), LAUNCH, {})
    assert made == {
        "RAY_ADDRESS": "10.1.0.1:20123",
        "RAY_API_SERVER_ADDRESS": "http://10.1.0.1:20124",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/run/lockstep/a3/ray/token",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@pytest.mark.parametrize(
    ("own", "changed"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"}),
        ({"RAY_USAGE_STATS_ENABLED": "1"}, {"RAY_USAGE_STATS_ENABLED"}),
        ({"RAY_ADDRESS": "elsewhere:6379"}, set()),
    ],
)
def test_what_the_run_sets_itself_comes_first_but_for_where_its_ray_is(own: dict[str, str], changed: set[str]) -> None:
    all_made = ray.environment(settings(Path("/s")), LAUNCH, {})
    assert all_made.keys() - ray.environment(settings(Path("/s")), LAUNCH, own).keys() == changed


def test_addresses_of_ipv6_are_in_brackets() -> None:
    made = ray.environment(settings(Path("/s")), LAUNCH._replace(master_address="fd00::1"), {})
    assert made["RAY_ADDRESS"] == "[fd00::1]:20123"


def test_the_token_is_for_this_user_alone(tmp_path: Path) -> None:
    contract = {name: str(tmp_path / "a3" / "x") for name in ("LOCKSTEP_PROGRESS_FILE", "LOCKSTEP_NODELIST_FILE")}
    make_scratch(settings(tmp_path), LAUNCH, contract)
    token = tmp_path / "a3" / "ray" / "token"
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("s" * 64, 0o600)
    assert token.parent.stat().st_mode & 0o777 == 0o700


def test_without_a_token_nothing_is_started(tmp_path: Path) -> None:
    contract = {name: str(tmp_path / "a3" / "x") for name in ("LOCKSTEP_PROGRESS_FILE", "LOCKSTEP_NODELIST_FILE")}
    with pytest.raises(LaunchError, match="no token"):
        make_scratch(settings(tmp_path), LAUNCH._replace(token=""), contract)


@pytest.mark.parametrize("entries", [1, 2], ids=["of which each is known once", "though Ray has two entries of one"])
def test_the_command_starts_once_all_nodes_have_joined(fake: FakeRay, entries: int) -> None:
    if entries > 1:
        fake.keep_entry(0)
    head = fake.start(0, sys.executable, "-c", "print('driven')")
    fake.wait_until_alive(0)
    time.sleep(1.5 if entries > 1 else 0.5)
    assert head.poll() is None, "one of two is no cluster"
    fake.start(1)
    out, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, out) == (0, "driven\n"), err
    assert "Ray has all nodes of 2" in err


def test_each_node_starts_ray_at_the_attempts_ports_with_its_token(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER)
    fake.start(1)
    fake.wait_until_alive(0, 1)
    head, other = sorted(fake.starts, key=lambda started: started["--node-ip-address"])
    assert head["--port"] == str(fake.port)
    assert (head["--dashboard-host"], head["--dashboard-port"]) == ("127.0.0.1", "8265")
    assert other["--address"] == f"127.0.0.1:{fake.port}"
    assert "--head" not in other
    for node in (head, other):
        assert (node["--num-cpus"], node["--min-worker-port"], node["--max-worker-port"]) == ("1", "0", "0")
        assert int(node["--dashboard-agent-listen-port"]) in range(20000, 30000)
        assert Path(node["env"]["RAY_AUTH_TOKEN_PATH"]).read_text() == "t" * 64
        assert "RAY_ADDRESS" not in node["env"]
    assert Path(head["--temp-dir"]) == fake.scratch(0) / "a1" / "ray"


@pytest.mark.parametrize(("ends", "code"), [("raise SystemExit(5)", 5), ("os.kill(os.getpid(), 6)", -6)])
def test_it_ends_as_the_command_did(fake: FakeRay, ends: str, code: int) -> None:
    head = fake.start(0, sys.executable, "-c", f"import os; {ends}", world=1)
    head.communicate(timeout=SECONDS)
    assert head.returncode == code


def test_a_command_that_is_not_there_is_as_in_a_shell(fake: FakeRay) -> None:
    head = fake.start(0, "/nonexistent", world=1)
    _, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, "/nonexistent: No such file" in err) == (127, True)


def test_the_command_hears_of_a_stop_and_ray_stays_for_its_save(fake: FakeRay) -> None:
    head, other = fake.start(0, sys.executable, "-c", DRIVER), fake.start(1)
    assert head.stdout is not None
    assert json.loads(head.stdout.readline())["RAY_ADDRESS"] == f"127.0.0.1:{fake.port}"
    for node in (other, head):
        os.killpg(node.pid, signal.SIGTERM)
    assert head.stdout.readline() == "saves\n"
    assert len([*(fake.folder / "state/alive").iterdir()]) == 2
    assert head.wait(SECONDS) == 7
    assert other.poll() is None, "the worker of the head's node has yet to end Ray there"
    fake.kill_raylet(0)
    assert other.wait(SECONDS) == 0


def test_ray_that_fails_to_start_says_why_and_is_no_success(fake: FakeRay) -> None:
    fake.break_down()
    head = fake.start(0, world=1)
    _, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, "the port is taken" in err, "Ray did not start on this node" in err) == (1, True, True)
    assert len(fake.starts) == 4, "it has tried again"


@pytest.mark.parametrize(
    ("started", "ended", "shown"),
    [
        (False, False, "what Ray said\nlockstep: Ray did not start on this node\n"),
        (True, False, "1 of 2 nodes have joined\nlockstep: not all nodes have joined Ray\n"),
        (True, True, "what Ray said\nlockstep: Ray ended on this node\n"),
    ],
)
def test_of_a_cluster_that_hangs_at_its_start_the_log_of_what_it_waited_for_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: bool, ended: bool, shown: str
) -> None:
    (tmp_path / "start.log").write_text("what Ray said\n")
    (tmp_path / "joined.log").write_text("1 of 2 nodes have joined\n")
    said: list[bytes] = []
    monkeypatch.setattr(ray_node, "write_own", said.append)
    monkeypatch.setattr(ray_node, "interpreter_of", lambda program: sys.executable)
    monkeypatch.setattr(RayNode, "_start_ray", lambda self: 1)
    monkeypatch.setattr(RayNode, "_runs", lambda self, ray, until: started)
    problem = "Ray ended on this node" if ended else "not all nodes have joined Ray"
    monkeypatch.setattr(RayNode, "_gathers", lambda self, ray, until: problem)
    about = {"entrypoint": 0, "gcs": ["127.0.0.1", 1], "directory": str(tmp_path), "world": 2, "joins": False}
    node = RayNode(about, [], ["train"])
    if ended:
        node._ended[1] = 0
    assert node._lead() == 1
    assert b"".join(said).decode() == shown


def test_ray_that_gives_up_on_a_slow_machine_is_started_again(fake: FakeRay) -> None:
    head = fake.start(0, sys.executable, "-c", "print('driven')", world=1, FAILS="2")
    out, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, out, len(fake.starts)) == (0, "driven\n", 3), err


def test_a_head_that_ends_before_all_have_joined_is_started_again_where_they_may_join_again(fake: FakeRay) -> None:
    head = fake.start(0, sys.executable, "-c", "print('driven')", joins=True)
    wait_for("others are awaited", (fake.scratch(0) / "a1" / "ray" / "joined.log").exists, seconds=SECONDS)
    fake.kill_raylet(0)
    wait_for("it is started again", lambda: len(fake.starts) == 2, seconds=SECONDS)
    fake.start(1, joins=True)
    out, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, out) == (0, "driven\n"), err


def test_the_end_of_ray_on_the_head_ends_the_command(fake: FakeRay) -> None:
    head = fake.start(0, sys.executable, "-c", DRIVER, world=1)
    assert head.stdout is not None
    head.stdout.readline()
    fake.kill_raylet(0)
    assert head.wait(SECONDS) == 1


def test_the_end_of_ray_on_a_node_that_may_not_join_again_is_the_nodes_end(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER)
    other = fake.start(1)
    fake.wait_until_alive(0, 1)
    fake.kill_raylet(1)
    _, err = other.communicate(timeout=SECONDS)
    assert (other.returncode, "Ray subprocesses exited unexpectedly" in err) == (1, True)


def test_ray_that_ends_as_soon_as_it_has_started_has_started(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER)
    fake.wait_until_alive(0)
    other = fake.start(1, DIES="1")
    _, err = other.communicate(timeout=SECONDS)
    assert (other.returncode, "is started again" in err) == (1, False)


def test_the_head_that_ends_as_soon_as_it_has_started_has_started(fake: FakeRay) -> None:
    head = fake.start(0, "true", DIES="1")
    _, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, "Ray ended on this node" in err, "is started again" in err) == (1, True, False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ray_is_started_again_on_a_node_that_may_join_again(fake: FakeRay, number: int) -> None:
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    other = fake.start(1, joins=True)
    fake.wait_until_alive(0, 1)
    time.sleep(1.5)  # it looks for it once a second
    fake.kill_raylet(1, number)
    wait_for("it is started again", lambda: len(fake.starts) == 3, seconds=SECONDS)
    fake.wait_until_alive(1)
    assert other.poll() is None


def test_ray_that_ends_again_and_again_is_given_up(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    fake.wait_until_alive(0)
    fake.break_down()
    other = fake.start(1, joins=True)
    _, err = other.communicate(timeout=SECONDS)
    assert (other.returncode, err.count("is started again")) == (1, 3)
    assert len(fake.starts) == 5


def test_a_node_of_a_head_that_is_gone_is_not_to_blame(fake: FakeRay) -> None:
    head = fake.start(0, sys.executable, "-c", DRIVER)
    other = fake.start(1)
    fake.wait_until_alive(0, 1)
    fake.kill_raylet(0)
    head.wait(SECONDS)
    fake.kill_raylet(1)
    time.sleep(2.0)
    assert other.poll() is None
    os.killpg(other.pid, signal.SIGTERM)
    assert other.wait(SECONDS) == 0


def test_a_node_that_is_left_is_drained_once_and_not_started_again(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    other = fake.start(1, joins=True)
    fake.wait_until_alive(0, 1)
    left = Settings("u", "n", "r", "u", 1, 1, "p", ["x"], launcher="Ray", scratch=str(fake.scratch(1)))
    until = time.time() + 40
    ray.tell_of_end(left, 1, until, "its pod is told to end")
    drained = fake.folder / "state/drained"
    wait_for("Ray was told", drained.exists, seconds=SECONDS)
    words = f"127.0.0.2 DRAIN_NODE_REASON_PREEMPTION its pod is told to end {int(until * 1000)}\n"
    wait_for("what it was told", lambda: drained.read_text() == words, seconds=SECONDS)
    fake.kill_raylet(1, signal.SIGTERM)
    time.sleep(2.5)
    assert (other.poll(), len(fake.starts)) == (None, 2)
    assert drained.read_text() == words


def leave(fake: FakeRay, rank: int) -> None:
    left = Settings("u", "n", "r", "u", rank, 1, "p", ["x"], launcher="Ray", scratch=str(fake.scratch(rank)))
    ray.tell_of_end(left, 1, time.time() + 40, "its pod is told to end")


def wait_until_drained(fake: FakeRay) -> None:
    drained = fake.folder / "state/drained"
    wait_for("Ray was told", lambda: drained.exists() and drained.read_text().endswith("\n"), seconds=SECONDS)
    assert drained.read_text().count("127.0.0.2 DRAIN_NODE_REASON_PREEMPTION") == 1


def test_ray_that_answers_nobody_for_a_moment_is_told_again_that_a_node_is_left(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    fake.start(1, joins=True)
    fake.wait_until_alive(0, 1)
    fake.deaf.touch()
    leave(fake, 1)
    log = fake.scratch(1) / "a1" / "ray" / "drain.log"
    wait_for("it was asked in vain", lambda: log.exists() and "GCS is not there" in log.read_text(), seconds=SECONDS)
    fake.deaf.unlink()
    wait_until_drained(fake)


def test_a_node_that_joins_while_it_is_left_is_drained_once_it_has_joined(fake: FakeRay) -> None:
    other = fake.start(1, joins=True)
    wait_for("it looks for its head", lambda: RAY_NODE in Path(f"/proc/{other.pid}/comm").read_text(), seconds=SECONDS)
    leave(fake, 1)
    log = fake.scratch(1) / "a1" / "ray" / "drain.log"
    wait_for(
        "it was asked in vain",
        lambda: log.exists() and "Ray has no node of 127.0.0.2" in log.read_text(),
        seconds=SECONDS,
    )
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    wait_until_drained(fake)


@pytest.mark.parametrize("more", [{}, {"REFUSES": "1"}])
def test_an_entry_of_an_earlier_ray_on_the_node_keeps_nobody_from_draining_it(
    fake: FakeRay, more: dict[str, str]
) -> None:
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    fake.start(1, joins=True, **more)
    fake.wait_until_alive(0, 1)
    fake.keep_entry(1)
    leave(fake, 1)
    wait_until_drained(fake)


def test_ray_that_crashes_on_a_node_that_is_left_is_not_started_again(fake: FakeRay) -> None:
    fake.start(0, sys.executable, "-c", DRIVER, joins=True)
    other = fake.start(1, joins=True)
    fake.wait_until_alive(0, 1)
    leave(fake, 1)
    wait_until_drained(fake)
    fake.kill_raylet(1)
    time.sleep(2.5)
    assert (other.poll(), len(fake.starts)) == (None, 2)
    os.killpg(other.pid, signal.SIGTERM)
    fake.kill_raylet(0)
    assert other.wait(SECONDS) == 0


def test_a_pid_that_comes_again_has_not_ended_as_the_process_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_node, "interpreter_of", lambda program: sys.executable)
    about = {"entrypoint": 0, "gcs": ["127.0.0.1", 1], "directory": str(tmp_path), "rank": 1, "joins": True}
    node = RayNode(about, [], ["train"])
    ended = [(4242, 0), (4243, 0)]
    monkeypatch.setattr(os, "waitpid", lambda pid, options: ended.pop() if ended else (0, 0))
    monkeypatch.setattr(signal, "sigtimedwait", lambda numbers, seconds: None)
    monkeypatch.setattr(ray_node.subprocess, "Popen", lambda *_, **__: SimpleNamespace(pid=4242))
    node._take_turn()
    assert node._start(["x"], {}) not in node._ended, "4242 was an orphan's"
    ended[:] = [(4242, 9)]
    node._take_turn()
    assert node._ended == {4242: 9}
    assert node._start(["x"], {}) not in node._ended


def test_a_ray_that_asks_for_no_token_is_not_started(tmp_path: Path) -> None:
    old = FakeRay(tmp_path, version="2.51.1")
    head = old.start(0, world=1)
    _, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, "use Ray 2.52 or later" in err, old.starts) == (126, True, [])
    trusting = FakeRay(tmp_path / "trusting", version="2.51.1")
    node = trusting.start(0, "true", world=1, RAY_AUTH_MODE="disabled")
    wait_for("it is started", lambda: trusting.starts, seconds=SECONDS)
    node.kill()
    trusting.end()


def test_an_image_without_ray_says_so(fake: FakeRay) -> None:
    shutil.rmtree(fake.folder / "lib" / "ray-2.60.0.dist-info")
    head = fake.start(0, world=1)
    _, err = head.communicate(timeout=SECONDS)
    assert (head.returncode, "install ray[default] in the image" in err) == (126, True)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[FakeOperator]:
    made = FakeOperator(tmp_path)
    yield made
    made.close()


def begin(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay, *, rank: int, joins: bool = True, grace: int = 40
) -> RunningWorker:
    """A worker with Ray, whose head nobody can reach."""
    environ = {"PATH": f"{fake.folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(fake.folder / "lib")}
    worker = launch(
        "true", LOCKSTEP_LAUNCHER="Ray", LOCKSTEP_LAUNCHER_OPTIONS=json.dumps({"joins": joins}),
        LOCKSTEP_TERMINATION_GRACE=str(grace), **environ,
    )  # fmt: skip
    ready(operator, 1, rank=rank, world=2)
    operator.run(1, rank=rank, world=2, token="t" * 64)
    operator.wait_for(lambda state: state["phase"] == "Running")
    wait_for("its program runs", lambda: RAY_NODE in names(children(worker.process.pid)).values(), seconds=SECONDS)
    return worker


def test_a_worker_of_ray_holds_a_port_for_the_dashboard(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay
) -> None:
    begin(operator, launch, fake, rank=1)
    at_barrier = next(state for state in operator.states() if state["readyFor"] == 1)
    assert at_barrier["dashboardPort"] not in (0, at_barrier["port"])
    assert "dashboardPort" not in operator.states()[-1]


@pytest.mark.parametrize("superseded", [False, True])
def test_a_node_that_is_told_to_leave_tells_ray_until_when_and_stays(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay, superseded: bool
) -> None:
    worker = begin(operator, launch, fake, rank=1)
    worker.process.terminate()
    told = operator.wait_for(lambda state: state.get("leavingBy"))
    if superseded:
        operator.desire("Stop", 1, rank=-1, superseded=True)
    said = worker.scratch / "a1" / "ray" / ray.DRAIN_FILE
    wait_for("Ray is told", said.exists, seconds=SECONDS)
    until = json.loads(said.read_text())["until"]
    assert time.time() < until < told["leavingBy"]
    time.sleep(1.5)
    assert (worker.process.poll(), operator.states()[-1]["phase"]) == (None, "Running")
    operator.desire("Stop", 1, rank=1, world=2)  # all of the gang
    assert worker.wait() in (0, 143)


def test_ray_is_told_of_a_node_that_is_left_also_where_a_program_listens(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay
) -> None:
    worker = begin(operator, launch, fake, rank=1)
    (worker.scratch / "a1" / "control.json.read").touch()
    operator.wait_for(lambda state: state["listens"])
    worker.process.terminate()
    wait_for("Ray is told", (worker.scratch / "a1" / "ray" / ray.DRAIN_FILE).exists, seconds=SECONDS)


@pytest.mark.parametrize(("rank", "joins"), [(0, True), (1, False)])
def test_who_ray_does_not_go_on_without_ends_as_any_other(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay, rank: int, joins: bool
) -> None:
    worker = begin(operator, launch, fake, rank=rank, joins=joins)
    worker.process.terminate()
    operator.wait_for(lambda state: state["phase"] == "Exited")
    assert not (worker.scratch / "a1" / "ray" / ray.DRAIN_FILE).exists()


def test_who_is_superseded_tells_ray_until_when_before_its_pod_is_told_to_end(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay
) -> None:
    worker, asked = begin(operator, launch, fake, rank=1, grace=16), time.time()
    operator.desire("Stop", 1, rank=-1, superseded=True, stopGraceSeconds=7)
    said = worker.scratch / "a1" / "ray" / ray.DRAIN_FILE
    wait_for("Ray is told", said.exists, seconds=SECONDS)
    until = json.loads(said.read_text())["until"]
    assert 4 < until - asked < 60
    operator.wait_for(lambda state: state["phase"] in ("Stopping", "Exited"))
    assert time.time() > until - 1, "it had the time"
    operator.wait_for(lambda state: state["phase"] == "Exited")


@pytest.mark.parametrize(("attempt", "more"), [(2, {"superseded": True}), (1, {})])
def test_where_nobody_goes_on_ray_is_not_told(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay, attempt: int, more: dict[str, bool]
) -> None:
    worker = begin(operator, launch, fake, rank=1)
    operator.desire("Stop", attempt, rank=-1, stopGraceSeconds=7, **more)
    operator.wait_for(lambda state: state["phase"] == "Exited")
    assert not (worker.scratch / "a1" / "ray" / ray.DRAIN_FILE).exists()


def test_a_worker_takes_up_the_start_of_its_attempt_as_it_is_written_anew(
    operator: FakeOperator, launch: LaunchWorker, fake: FakeRay
) -> None:
    begin(operator, launch, fake, rank=1)
    start = {
        "attempt": 1, "assignmentHash": "abc", "masterAddress": "10.1.0.1", "masterPort": 40123, "joins": 1,
        "members": [{"slots": "0", "incarnation": 1}],
    }  # fmt: skip
    operator.desire("Run", 1, rank=1, world=2, start=start)
    operator.wait_for(lambda state: (state["start"] or {}).get("joins") == 1)
