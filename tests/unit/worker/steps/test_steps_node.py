"""Steps in the life of workers: two of one gang, as real processes, against a fake operator."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.proc import children, is_alive, names
from harness.running_worker import RUN_UID, pid_in, until
from support.worker_gang import NODES, Workers

pytestmark = pytest.mark.process


@pytest.fixture
def gang(tmp_path: Path, operator: FakeOperator) -> Iterator[Callable[..., Workers]]:
    made: list[Workers] = []

    def start(*command: str, **environ: str) -> Workers:
        made.append(Workers(tmp_path, operator, list(command), **environ))
        return made[-1]

    yield start
    for workers in made:
        for node in workers.nodes:
            node.kill()


def program(path: Path, text: str) -> str:
    """An executable that is called by its name, so that the kernel calls it so."""
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return str(path)


def test_rank_0_runs_the_command_on_all_nodes_while_the_others_stand_by(gang: Callable[..., Workers]) -> None:
    script = "lockstep-step --label -- sh -c 'echo $LOCKSTEP_NODE_RANK $NODE_RANK $(basename $LOCKSTEP_STEPS_DIR)'"
    workers = gang("sh", "-c", script)
    ports = workers.start()
    assert len({*ports}) == NODES
    assert workers.exited(0)["exit"]["code"] == 0
    assert sorted(workers.nodes[0].out.read_text().splitlines()) == ["0: 0 0 steps", "1: 1 1 steps"]
    running = workers.state(1, lambda state: state["phase"] == "Running")
    assert running["stepsPort"] == ports[1], "it stays the same until the attempt ends"
    assert workers.nodes[1].process.poll() is None
    workers.operator.desire("Complete", 1, world=NODES)
    assert [node.wait() for node in workers.nodes] == [0, 0]


def test_a_python_program_runs_steps_and_gets_codes_and_output(gang: Callable[..., Workers], tmp_path: Path) -> None:
    script = """
import json, lockstep_training
says = "echo $LOCKSTEP_NODE_RANK.$LOCKSTEP_STEP_LOCAL_TASK; exit $LOCKSTEP_STEP_TASK"
done = lockstep_training.step(["sh", "-c", says], tasks_per_node=2, capture=True)
one = lockstep_training.step(["no-such-program"], ranks=[1])
print(json.dumps([done.codes, {k: v.decode() for k, v in done.stdout.items()}, done.code, one.codes, one.problems]))
"""
    workers = gang(sys.executable, "-c", script)
    workers.start()
    assert workers.exited(0)["exit"]["code"] == 0
    codes, output, code, missing, problems = json.loads(workers.nodes[0].out.read_text())
    assert codes == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert output == {"0": "0.0\n", "1": "0.1\n", "2": "1.0\n", "3": "1.1\n"}
    assert (code, missing) == (3, {"0": 127})
    assert "no-such-program" in problems["0"]


def test_a_failure_is_told_by_its_own_node_and_without_secrets(gang: Callable[..., Workers]) -> None:
    script = "lockstep-step --ranks 1 -- sh -c 'echo cause $API_TOKEN >&2; exit 7'; exit 0"
    workers = gang("sh", "-c", script, API_TOKEN="swordfish-1234")
    workers.start()
    state = workers.state(1, lambda state: state.get("stepEnds"))
    (row,) = state["stepEnds"]
    assert (row["code"], row["signal"], row["program"], row["asked"]) == (7, None, "sh", False)
    assert row["stderrTail"] == "cause [hidden]\n"
    assert abs(row["at"] - time.time()) < 60
    assert not workers.exited(0).get("stepEnds")


def test_a_task_that_ends_while_others_go_on_is_told_by_the_node_whose_step_it_is(gang: Callable[..., Workers]) -> None:
    workers = gang("sh", "-c", "lockstep-step -- sh -c '[ $LOCKSTEP_NODE_RANK = 1 ] || sleep 60'")
    workers.start()
    (row,) = workers.state(0, lambda state: state.get("partlyEnded"))["partlyEnded"]
    assert (row["task"], row["nodeRank"], row["done"], row["left"]) == (1, 1, 1, 1)
    assert abs(row["at"] - time.time()) < 60


def test_a_node_that_cannot_be_reached_is_told_by_the_node_that_wanted_it(gang: Callable[..., Workers]) -> None:
    workers = gang("sh", "-c", "lockstep-step --ranks 1 -- sh -c 'kill -9 $PPID; sleep 60'; exit $?")
    workers.start()
    state = workers.exited(0)
    (row,) = state["stepEnds"]
    assert (row["reason"], row["nodeRank"], row["code"], row["asked"]) == ("NodeUnreachable", 1, 255, False)
    assert row["stderrTail"].startswith("the connection to rank 1 at ")
    assert state["exit"]["code"] == 255


def test_a_sign_in_a_steps_stderr_is_of_the_node_where_it_was_written(gang: Callable[..., Workers]) -> None:
    says = "echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.' >&2; sleep 60"
    workers = gang("sh", "-c", f'lockstep-step --ranks 1 -- sh -c "{says}" 2>/dev/null')
    workers.start()
    (sign,) = workers.state(1, lambda state: state.get("signs"))["signs"]
    assert (sign["kind"], sign["text"]) == ("Xid:79", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")


def test_what_mpirun_prints_of_a_rank_elsewhere_is_told_with_that_nodes_rank(gang: Callable[..., Workers]) -> None:
    said = (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 305 RUNNING AT 127.0.0.2\n=   EXIT CODE: 9\n"
    )
    workers = gang("sh", "-c", f"printf '{said}'; exit 9")
    workers.start()
    (row,) = workers.state(0, lambda state: state["phase"] == "Exited")["stepEnds"]
    assert (row["nodeRank"], row["signal"], row["code"], row["asked"]) == (1, 9, None, False)


def test_where_mpirun_is_hydras_the_command_has_no_rank_of_a_node_and_its_steps_have_their_own(
    gang: Callable[..., Workers], tmp_path: Path
) -> None:
    hydra = program(tmp_path / "mpiexec.hydra", "exit 0")
    script = 'echo "here ${LOCKSTEP_NODE_RANK-none}"; lockstep-step --label -- printenv LOCKSTEP_NODE_RANK'
    path = f"{Path(hydra).parent}:{os.environ['PATH']}"
    workers = gang("sh", "-c", script, LOCKSTEP_LAUNCHER="MPI", PATH=path)
    workers.start()
    workers.exited(0)
    assert sorted(workers.nodes[0].out.read_text().splitlines()) == ["0: 0", "1: 1", "here none"]


def test_a_stop_lets_ranks_save_for_as_long_as_its_grace_whatever_their_launcher_does(
    gang: Callable[..., Workers], tmp_path: Path
) -> None:
    rank = program(tmp_path / "rank", f"""
trap 'sleep 1.5; echo saved > {tmp_path}/saved-$LOCKSTEP_NODE_RANK; exit 0' TERM
echo $$ > {tmp_path}/pid-$LOCKSTEP_NODE_RANK
while :; do sleep 0.05; done
""")  # fmt: skip
    mpirun = program(tmp_path / "mpirun", f"""
trap 'echo told > {tmp_path}/told; kill -9 $step; exit 9' TERM
lockstep-step {rank} & step=$!
wait $step
exit $?
""")  # fmt: skip
    workers = gang("sh", "-c", f"{mpirun}; echo over $?")
    workers.start()
    for slot in range(NODES):
        pid_in(tmp_path / f"pid-{slot}")
    workers.operator.desire("Stop", 1, world=NODES, stopGraceSeconds=20)
    ends = [workers.exited(slot)["exit"] for slot in range(NODES)]
    assert [(tmp_path / f"saved-{slot}").exists() for slot in range(NODES)] == [True, True]
    assert [end["reason"] for end in ends] == ["StoppedOnRequest"] * 2
    assert not (tmp_path / "told").exists(), "the launcher ended with its ranks"
    assert workers.nodes[0].out.read_text() == "over 0\n"


def test_launchers_that_do_not_end_with_their_ranks_are_asked_shortly_before_the_grace_ends(
    gang: Callable[..., Workers], tmp_path: Path
) -> None:
    mpirun = program(tmp_path / "mpirun", f"""
trap 'echo told > {tmp_path}/told; exit 9' TERM
lockstep-step --ranks 1 -- true
echo $$ > {tmp_path}/pid
while :; do sleep 0.05; done
""")  # fmt: skip
    workers = gang(mpirun)
    workers.start()
    pid_in(tmp_path / "pid")
    asked = time.monotonic()
    workers.operator.desire("Stop", 1, world=NODES, stopGraceSeconds=4)
    end = workers.exited(0)["exit"]
    assert (end["code"], end["reason"]) == (9, "StoppedOnRequest")
    assert time.monotonic() - asked > 2.0
    assert workers.exited(1)["exit"] == {**workers.exited(1)["exit"], "code": 0, "reason": "StoppedOnRequest"}


def test_a_request_to_save_by_signal_reaches_ranks_and_no_launcher(
    gang: Callable[..., Workers], tmp_path: Path
) -> None:
    catches = "trap 'echo $0 >> {}/heard-$LOCKSTEP_NODE_RANK' USR1\n"
    waits = f"echo $$ > {tmp_path}/pid-$LOCKSTEP_NODE_RANK\nwhile :; do sleep 0.05; done\n"
    rank = program(tmp_path / "rank", catches.format(tmp_path) + waits)
    orted = program(tmp_path / "orted", f"{catches.format(tmp_path)}{rank} & while :; do wait; done")
    mpirun = program(tmp_path / "mpirun", f"{catches.format(tmp_path)}lockstep-step {orted} & while :; do wait; done")
    checkpoint = {"format": "Auto", "shared": str(tmp_path), "runUid": RUN_UID, "signal": "SIGUSR1"}
    workers = gang("sh", "-c", f"trap 'echo shell >> {tmp_path}/heard-0' USR1; {mpirun} & while :; do wait; done",
                   LOCKSTEP_CHECKPOINT_CONFIG=json.dumps(checkpoint))  # fmt: skip
    workers.start()
    for slot in range(NODES):
        pid_in(tmp_path / f"pid-{slot}")
    save = {"id": "s", "atStep": 0, "deadline": time.time() + 60}
    workers.operator.desire(**{**workers.operator._desired, "world": NODES, "save": save})
    for slot, node in enumerate(workers.nodes):
        heard = tmp_path / f"heard-{slot}"
        until(lambda heard=heard: heard.exists() and heard.read_text())
        until(lambda node=node: "asked 1 process to save with SIGUSR1" in node.stderr())
    assert [(tmp_path / f"heard-{slot}").read_text() for slot in range(NODES)] == [f"{rank}\n"] * 2


def test_stacks_are_of_the_programs_and_not_of_what_holds_them(gang: Callable[..., Workers], tmp_path: Path) -> None:
    hangs = f"echo $$ > {tmp_path}/pid-$LOCKSTEP_NODE_RANK; exec sleep 1000"
    workers = gang("lockstep-step", "--", "sh", "-c", hangs)
    workers.start()
    for slot in range(NODES):
        pid_in(tmp_path / f"pid-{slot}")
    workers.operator.desire(**{**workers.operator._desired, "world": NODES, "stacks": "why"})
    stacks = [workers.state(slot, lambda state: state.get("stacks"))["stacks"]["text"] for slot in range(NODES)]
    assert "sleep: " in stacks[0]
    assert "sleep: " in stacks[1]
    assert "lockstep-server" not in stacks[0] + stacks[1]
    assert len(stacks[1].splitlines()) == 1


def test_what_a_step_left_behind_is_gone_before_the_next_attempt_begins(
    gang: Callable[..., Workers], tmp_path: Path
) -> None:
    leaves = program(tmp_path / "leaves", f"""
(setsid sh -c 'echo $$ > {tmp_path}/daemon-$LOCKSTEP_NODE_RANK; exec sleep 1000' >/dev/null 2>&1 &)
while [ ! -s {tmp_path}/daemon-$LOCKSTEP_NODE_RANK ]; do sleep 0.05; done
""")  # fmt: skip
    workers = gang("sh", "-c", f"lockstep-step {leaves}; echo left > {tmp_path}/left; sleep 1000")
    first = workers.start()
    until((tmp_path / "left").exists)
    daemons = [pid_in(tmp_path / f"daemon-{slot}") for slot in range(NODES)]
    assert all(map(is_alive, daemons)), "a finished call kills nothing"
    second = workers.ready(2)
    assert not any(map(is_alive, daemons))
    assert not {*first} & {*second}


def test_a_step_server_that_dies_beside_the_program_is_started_anew(
    gang: Callable[..., Workers], tmp_path: Path
) -> None:
    script = f"""
lockstep-step --ranks 0 -- true && echo $$ > {tmp_path}/pid
while [ ! -e {tmp_path}/go ]; do sleep 0.05; done
exec lockstep-step --ranks 0 -- sh -c 'exit 4'
"""
    workers = gang("sh", "-c", script)
    workers.start()
    pid_in(tmp_path / "pid")
    for child, name in names(children(workers.nodes[0].process.pid)).items():
        if name == "lockstep-server":
            os.kill(child, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert workers.exited(0)["exit"]["code"] == 4
    assert "lockstep: the step server has died and is started anew" in workers.nodes[0].stderr()


def test_without_certificates_nothing_starts_and_the_reason_is_told(gang: Callable[..., Workers]) -> None:
    workers = gang("true")
    workers.ready()
    workers.operator.run(1, world=NODES)
    end = workers.exited(1)["exit"]
    assert (end["code"], end["reason"]) == (125, "ProcessNotStarted")
    assert "no certificate for steps" in end["stderrTail"]


def test_credentials_are_for_the_user_alone_and_reported_to_nobody(gang: Callable[..., Workers]) -> None:
    workers = gang("sh", "-c", "ls -ld $LOCKSTEP_STEPS_DIR; ls -l $LOCKSTEP_STEPS_DIR; which lockstep-step")
    workers.start()
    workers.exited(0)
    lines = workers.nodes[0].out.read_text().splitlines()
    assert lines[0].startswith("drwx------")
    assert sorted(line.split()[-1] for line in lines[2:6]) == ["ca.pem", "node.pem", "peers.json", "told"]
    assert sorted(line.split()[0] for line in lines[2:6]) == [*["-rw-------"] * 3, "prw-------"]
    assert lines[6] == str(workers.nodes[0].scratch / "bin" / "lockstep-step")
    assert "PRIVATE KEY" not in json.dumps(workers.operator.bodies())


def test_a_launcher_without_steps_binds_no_port_for_them(gang: Callable[..., Workers]) -> None:
    workers = gang("sh", "-c", "env", LOCKSTEP_LAUNCHER_OPTIONS="{}")
    workers.operator.desire("Prepare", 1, world=NODES)
    state = workers.state(0, lambda state: state["readyFor"] == 1)
    assert "stepsPort" not in state
    workers.operator.run(1, world=NODES)
    workers.exited(0)
    assert "LOCKSTEP_STEPS_DIR" not in workers.nodes[0].out.read_text()
