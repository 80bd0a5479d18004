"""What each fault does to a run that is held at its moment, and how it is mended again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping

from faults.menu import Fault, Phase
from faults.stage import BYSTANDER, HIT, PATIENCE, SAVE_AT, TRAINING_AT, Stage, saved_by
from harness.training import NAMESPACE, SETTINGS, SILENT_AFTER

UNNOTICED_SECONDS = SILENT_AFTER + SETTINGS["stepsStoppedAfter"] + 2.0
"""Long enough for a false alarm to go off."""
AWAY_SECONDS = 5.0
SPARED_BYTES = 16 << 10
"""What a disk that fills up in training still takes: a line of text, but no shard."""


@contextlib.contextmanager
def struck(stage: Stage) -> Iterator[None]:
    """The fault has struck, and the run goes on without being held; mended at the end.

    Inside the program it strikes by itself.
    """
    strike = STRIKES.get(stage.dish.fault)
    with strike(stage) if strike is not None else _by_itself(stage):
        yield


@contextlib.contextmanager
def _by_itself(stage: Stage) -> Iterator[None]:
    stage.go_on()
    yield


@contextlib.contextmanager
def killed(stage: Stage) -> Iterator[None]:
    stage.signal(signal.SIGKILL)
    stage.go_on()
    yield


@contextlib.contextmanager
def stopped(stage: Stage) -> Iterator[None]:
    """Nobody sends SIGCONT: it goes with the process."""
    stage.signal(signal.SIGSTOP)
    stage.go_on()
    yield


@contextlib.contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    claim = stage.site.world.claim_folder(NAMESPACE, stage.claim)
    filler = claim / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 << 10))
    try:
        if stage.moment is not None:
            os.truncate(filler, filler.stat().st_size - SPARED_BYTES)
        stage.go_on()
        if stage.moment is None:
            told = "the shared checkpoint tier is full"
            stage.run.wait(
                "it is said why it waits", lambda: told in stage.run.condition("GangReady").get("message", ""), PATIENCE
            )
        else:
            until_given_up(stage)
    finally:
        filler.unlink()
    yield


@contextlib.contextmanager
def save_torn(stage: Stage) -> Iterator[None]:
    steps = saved_by(stage.run, 1)
    if stage.dish.phase in (Phase.SAVE, Phase.STOP):
        begun = [int(path.name.partition("-")[2]) for path in (stage.run.folder / "a1").glob("step-*")]
        stage.run.wait("it is committed", lambda: max(begun) in saved_by(stage.run, 1), PATIENCE)
        steps = saved_by(stage.run, 1)
    if stage.dish.phase is Phase.STOP:  # torn before it was seen whole it would never be called saved
        stage.run.wait("it is known", lambda: stage.run.status["checkpoint"]["save"].get("outcome"), PATIENCE)
    shard = stage.run.folder / "a1" / f"step-{steps[-1]}" / f"shard-{HIT}.f32"
    os.truncate(shard, shard.stat().st_size // 2)
    if stage.dish.phase in (Phase.SAVE, Phase.TRAINING):
        stage.signal(signal.SIGKILL)
    stage.go_on()
    yield


@contextlib.contextmanager
def node_dead(stage: Stage) -> Iterator[None]:
    node = stage.node
    stage.site.world.process_nodes.kill_node(node)
    stage.site.declare_not_ready(node)
    stage.go_on()
    until_left(stage, node)
    stage.site.world.process_nodes.return_node(node)
    yield


@contextlib.contextmanager
def node_frozen(stage: Stage) -> Iterator[None]:
    """It wakes while the next attempt trains, and its processes go on with the old one."""
    node, run, nodes = stage.node, stage.run, stage.site.world.process_nodes
    nodes.freeze_node(node)
    stage.site.declare_not_ready(node)
    stage.go_on()
    until_left(stage, node)
    if stage.dish.phase is Phase.STOP:
        nodes.thaw_node(node)
        yield
        return
    run.wait("the gang has saved without it", lambda: saved_by(run, run.status["attempt"]), PATIENCE)
    newer = run.status["attempt"]
    before, woken = run.files(newer), time.time()
    if stage.dish.phase is Phase.SAVE:
        nodes.cut_node(node)  # told that it is late, or seeing the others gone, it might end before it saves
        nodes.thaw_node(node)
        late = run.folder / "a1" / f"step-{SAVE_AT}" / f"shard-{HIT}.f32"
        run.wait("the zombie saves", lambda: late.exists() and late.stat().st_mtime >= woken, PATIENCE)
        nodes.heal_node(node)
    else:
        nodes.thaw_node(node)
    run.wait("the zombie's pod is gone", lambda: len(run.pods) == run.ranks, PATIENCE)
    yield
    after = run.files(newer)
    assert before, "nothing to compare"
    for name, content in before.items():
        grows = name.endswith(".jsonl")
        assert after[name].startswith(content) if grows else after[name] == content, f"{name} was changed by a zombie"


@contextlib.contextmanager
def cut_from_operator(stage: Stage) -> Iterator[None]:
    node, nodes = stage.node, stage.site.world.process_nodes
    nodes.cut_node(node, "operator")
    if stage.dish.phase in (Phase.TRAINING, Phase.SAVE):
        stage.go_on()
        stage.run.wait("it trains on", lambda: stage.run.step(1) > TRAINING_AT, PATIENCE)
        time.sleep(UNNOTICED_SECONDS / 2)
        assert stage.run.status["attempt"] == 1
    else:
        time.sleep(UNNOTICED_SECONDS)  # nothing else passes the time there
    if stage.held:
        stage.admit(but=BYSTANDER)
    else:
        nodes.heal_node(node)
    stage.go_on()
    yield


@contextlib.contextmanager
def cut_from_peers(stage: Stage) -> Iterator[None]:
    node, nodes = stage.node, stage.site.world.process_nodes
    if stage.moment is None:
        stage.go_on()  # first, as it mends every cut
        nodes.cut_node(node, "peers")
        stage.run.wait("it starts", lambda: stage.run.status.get("start"), PATIENCE)
        time.sleep(AWAY_SECONDS)
    else:
        nodes.cut_node(node, "peers")
        stage.go_on()
        until_given_up(stage)
    nodes.heal_node(node)
    yield


@contextlib.contextmanager
def api_server_away(stage: Stage) -> Iterator[None]:
    cluster = stage.site.world.cluster
    cluster.stop_component("apiserver", kill=True)
    try:
        if stage.moment is not None:
            stage.go_on()
        time.sleep(AWAY_SECONDS)
    finally:
        cluster.start_component("apiserver")
    stage.site.world.operator.wait_until_leading(PATIENCE)
    stage.go_on()
    yield


@contextlib.contextmanager
def operator_killed(stage: Stage) -> Iterator[None]:
    stage.site.kill_operator()
    stage.go_on()
    stage.site.world.operator.wait_until_leading(PATIENCE)
    yield


@contextlib.contextmanager
def preempted(stage: Stage) -> Iterator[None]:
    """It is told to make room while it is held, and goes on when those who sent it away have had its nodes."""
    urgent, run = stage.send_urgent(), stage.run
    if stage.dish.phase is Phase.STOP:
        urgent.wait("it waits for the nodes", lambda: urgent.status.get("queue", {}).get("reason"), PATIENCE)
    else:
        run.wait("it is told to make room", lambda: run.events("PreemptionNotice"), PATIENCE)
    if stage.dish.fault is Fault.PREEMPTION_KILL:
        stage.site.kill_operator()
        stage.site.world.operator.wait_until_leading(PATIENCE)
    if stage.dish.save:  # else it might come to its end first
        run.wait("a save is asked for", lambda: run.status.get("checkpoint", {}).get("save"), PATIENCE)
    stage.go_on()
    yield
    urgent.wait_until_succeeded(PATIENCE)
    away = 0 if stage.dish.phase is Phase.STOP else 1
    assert run.status["admission"].get("preemptions", 0) == away, run.summary()
    assert not urgent.status["admission"].get("preemptions")
    assert "reservation" not in urgent.status
    assert "preemption" not in run.status


def until_given_up(stage: Stage) -> None:
    """The attempt that was hit is over, or the save before the stop is."""
    if stage.dish.phase is Phase.STOP:
        stage.run.wait("the save is given up", lambda: stage.run.status["checkpoint"]["save"].get("outcome"), PATIENCE)
    else:
        stage.run.wait("the attempt is given up", lambda: stage.run.status["attempt"] > stage.attempt, PATIENCE)


def until_left(stage: Stage, node: str) -> None:
    """The node is no part of the gang any more, or the save before the stop is given up."""
    if stage.dish.phase is Phase.STOP:
        until_given_up(stage)
    else:
        stage.run.wait(f"{node} is replaced", lambda: node not in [*stage.run.nodes, ""], PATIENCE)


STRIKES: Mapping[Fault, Callable[[Stage], contextlib.AbstractContextManager[None]]] = {
    Fault.KILL: killed,
    Fault.SIGSTOP: stopped,
    Fault.FULL_DISK: disk_full,
    Fault.TORN_SAVE: save_torn,
    Fault.NODE_DEATH: node_dead,
    Fault.NODE_FREEZE: node_frozen,
    Fault.CUT_OPERATOR: cut_from_operator,
    Fault.CUT_PEERS: cut_from_peers,
    Fault.API_SERVER: api_server_away,
    Fault.OPERATOR_KILL: operator_killed,
    Fault.PREEMPTION: preempted,
    Fault.PREEMPTION_KILL: preempted,
}
