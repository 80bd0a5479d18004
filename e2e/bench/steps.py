"""How long a step takes on many nodes, beside bare agents that start the same processes over plain TCP.

On one machine, in turns: a step server for each node, with certificates and handshakes as in a gang, and an agent for
each node that takes a command from whoever connects, forks, runs it, and sends back what it says. The same number of
processes (`true`) is started on all nodes at once, by one client each; from the first connection until the last exit
code. The last line is JSON with the medians over all rounds; ratio_N is step_N_s / floor_N_s for N processes on each
node. stdout_mb_s is the output of one step, read by a client that throws it away. ratio_sshd is `mpirun hostname` on 16
machines by steps over the same by a real sshd on each. operator_cpu is the part of a core that a real operator uses
while a gang runs a hundred steps, operator_cpu_idle the same in as long a time without a step; they may differ by
0.05. What falls behind its bar, or could not be measured and was not left out by an option, is named in `behind`, and
with 64 nodes or more the exit code says so.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench import remote_start, step_operator
from harness.step_gang import StepGang
from lockstep.worker.steps.client import RunningStep, StepSink, TaskOutcome
from lockstep.worker.steps.credentials import read_gang
from lockstep.worker.steps.request import AskedOfNode, TaskAsked

_NODES = 64
_PROCESSES = (1, 8)
_MOST_RATIO = 1.5
_LEAST_RATE = 100.0
_MEGABYTES = 300
_MACHINES = 16
_STEPS = 100
_MOST_CPU = 0.05
_COMMAND = ("true",)
_AGENT = """
import gc, json, os, signal, socket, subprocess, sys
listener = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
gc.freeze()
while True:
    connection, _ = listener.accept()
    if os.fork():
        connection.close()
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = json.loads(connection.makefile().readline())
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(asked["argv"], **pipes) for _ in range(asked["processes"])]
    for process in started:
        out, err = process.communicate()
        connection.sendall(out + err + b"%d\\n" % process.returncode)
    os._exit(0)
"""


@contextmanager
def agents(nodes: int) -> Iterator[list[tuple[str, int]]]:
    """A bare agent for each node: where they listen."""
    with ExitStack() as stack:
        where = []
        for node in range(nodes):
            listener = stack.enter_context(socket.create_server((f"127.0.1.{node + 1}", 0), backlog=128))
            command = [sys.executable, "-ISc", _AGENT, str(listener.fileno())]
            process = subprocess.Popen(command, pass_fds=(listener.fileno(),))
            stack.callback(process.wait)
            stack.callback(process.kill)
            where.append(listener.getsockname())
        yield where


def bare(where: Sequence[tuple[str, int]], processes: int) -> float:
    """Seconds until all agents have said how all their processes ended."""
    request = json.dumps({"argv": _COMMAND, "processes": processes}).encode() + b"\n"
    begun = time.monotonic()
    poll = select.poll()
    said = {}
    open_ones = {}
    for address in where:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(address)
        open_ones[connection.fileno()] = connection
        said[connection.fileno()] = b""
        poll.register(connection, select.POLLOUT)
    while open_ones:
        for descriptor, event in poll.poll():
            connection = open_ones[descriptor]
            if event & select.POLLOUT:
                connection.sendall(request)
                poll.modify(connection, select.POLLIN)
                continue
            data = connection.recv(65536)
            said[descriptor] += data
            if not data:
                poll.unregister(connection)
                open_ones.pop(descriptor).close()
    taken = time.monotonic() - begun
    assert all(answer == b"0\n" * processes for answer in said.values()), said
    return taken


def step(gang: StepGang, processes: int) -> float:
    """The same by a step."""
    directory = str(gang.nodes[0].directory)
    begun = time.monotonic()
    requests = [
        AskedOfNode("bench", rank, [TaskAsked(rank * processes + local, {}) for local in range(processes)], _COMMAND)
        for rank in range(len(gang.nodes))
    ]
    outcomes = RunningStep(read_gang(directory), directory, requests, StepSink()).run()
    taken = time.monotonic() - begun
    assert set(outcomes.values()) == {TaskOutcome(0)}, outcomes
    return taken


class _Counting(StepSink):
    seen = 0

    def output(self, task: int, stream: int, data: bytes) -> None:
        self.seen += len(data)


def throughput(gang: StepGang, megabytes: int) -> float:
    """Megabytes a second of one process's stdout."""
    directory, size = str(gang.nodes[0].directory), megabytes * 10**6
    sink = _Counting()
    request = AskedOfNode("bench", 1, [TaskAsked(0, {})], ("head", "-c", str(size), "/dev/zero"))
    begun = time.monotonic()
    RunningStep(read_gang(directory), directory, [request], sink).run()
    taken = time.monotonic() - begun
    assert sink.seen == size
    return megabytes / taken


def behind_bars(figures: Mapping[str, float]) -> list[str]:
    """The figures that are worse than they have to be."""
    found = [name for name in (f"ratio_{count}" for count in _PROCESSES) if figures[name] > _MOST_RATIO]
    found += ["ratio_sshd"] * (figures.get("ratio_sshd", 0.0) > 1.0)
    found += ["stdout_mb_s"] * (figures["stdout_mb_s"] < _LEAST_RATE)
    more = figures.get("operator_cpu", 0.0) - figures.get("operator_cpu_idle", 0.0)
    return [*found, *["operator_cpu"] * (more > _MOST_CPU)]


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=_NODES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=_MEGABYTES)
    parser.add_argument("--mpirun", default="mpirun", help="of Open MPI")
    parser.add_argument("--without-sshd", action="store_true", help="leave out mpirun over sshd")
    parser.add_argument("--without-operator", action="store_true", help="leave out the operator's CPU")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, agents(options.nodes) as where:
        gang = StepGang(Path(folder), options.nodes)
        try:
            figures: dict[str, float] = {}
            for processes in _PROCESSES:
                bare(where, processes), step(gang, processes)  # neither counts: everything is there then
                floors, steps = [], []
                for _ in range(options.rounds):
                    floors.append(bare(where, processes))
                    steps.append(step(gang, processes))
                    print(f"{processes} on each: floor {floors[-1]:.3f} s, step {steps[-1]:.3f} s", flush=True)
                floor, stepped = median(floors), median(steps)
                figures[f"floor_{processes}_s"] = round(floor, 4)
                figures[f"step_{processes}_s"] = round(stepped, 4)
                figures[f"ratio_{processes}"] = round(stepped / floor, 3)
            rates = [throughput(gang, options.megabytes) for _ in range(3)]
        finally:
            gang.close()
    figures["stdout_mb_s"] = round(median(rates), 1)
    if not options.without_operator:
        figures |= step_operator.operator_cpu(_STEPS)
    behind = []
    if not options.without_sshd:
        try:
            figures |= remote_start.compared(options.mpirun, min(_MACHINES, options.nodes), options.rounds)
        except remote_start.NotHereError as error:
            print(f"mpirun over sshd is not compared: {error}", flush=True)
            behind.append("ratio_sshd: not measured")
    behind += behind_bars(figures)
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"nodes": options.nodes, "load": load, **figures, "behind": behind}))
    return int(bool(behind) and options.nodes >= _NODES)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # of what is started here nothing needs it
    sys.exit(main())
