"""What the worker runs on a node of Ray: ``ray start``, and on rank 0 the command beside it once all nodes have joined.

It ends with the command's code, or badly where Ray has. On the other nodes it stays until it is killed, or told to end
and the head is gone: a node of Ray that left first would take along what the driver has yet to save. A program of its
own: it holds Ray's processes, which leave their parents, by descent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

from lockstep.worker.child.processes import adopt_orphans, name_process, other_processes
from lockstep.worker.errors import trouble
from lockstep.worker.launchers.interpreter import interpreter_of
from lockstep.worker.launchers.ray import DRAIN_FILE
from lockstep.worker.output import log_line, write_own
from lockstep.worker.settings import JSON

JOIN_SECONDS = 300.0  # for all nodes to join, before the command is started
RESTARTS, RESTARTS_WITHIN = 3, 600.0  # seconds: of Ray on a node that may join again
FIRST_WITH_TOKENS = (2, 52)
DRAIN_AGAIN_SECONDS = 2.0
PORTS = range(20000, 30000)  # below those that the kernel gives to connections
TURN_SECONDS = 0.25
STARTED = "Ray runtime started."  # how `ray start` says so
RAYLET = "raylet"  # what the kernel calls Ray's own process of a node
RAY_NODE = "lockstep-ray"  # and this one
NOT_ALL = "not all nodes have joined Ray"  # the operator looks for it
TAIL_BYTES = 3000
_WAKING = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_PROBE = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("ray"), int(importlib.util.find_spec("grpc") is not None))
"""
_JOINED = """
import sys, time
from ray._raylet import GcsClient
address, world, until = sys.argv[1], int(sys.argv[2]), time.time() + float(sys.argv[3])
alive, why = [], ""
while len(alive) < world:
    if time.time() > until:
        sys.exit(f"{len(alive)} of {world} nodes have joined Ray in time: {', '.join(alive)}{why}")
    try:
        nodes = GcsClient(address=address).get_all_node_info(timeout=5).values()
        # One that was started again has two entries until its head knows that the first has ended.
        alive, why = sorted({node.node_manager_address for node in nodes if node.state == 0}), ""
    except Exception as error:
        alive, why = [], f"; {error}"
    time.sleep(0.2)
"""
_DRAIN = """
import sys, time
from ray._raylet import GcsClient, NodeID
from ray.core.generated import autoscaler_pb2
address, own, until, why = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
client = GcsClient(address=address)
reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
nodes = [
    node for node in client.get_all_node_info(timeout=5).values()
    if node.state == 0 and node.node_manager_address == own
]
taken, words = False, "Ray has no node of " + own
for node in sorted(nodes, key=lambda node: -getattr(node, "start_time_ms", 0)):  # one that has ended may answer late
    try:
        takes, said = client.drain_node(node.node_id.hex(), reason, why, int(until * 1000))
    except Exception as error:
        takes, said = False, error
    taken, words = taken or takes, said
if not taken:
    sys.exit(f"{words}")
"""


class RayNode:
    """One node of Ray in one attempt."""

    def __init__(self, said: JSON, arguments: Sequence[str], command: Sequence[str]) -> None:
        self._said, self._arguments = said, list(arguments)
        ahead = int(said["entrypoint"])
        self._entrypoint, self._command = list(command[:ahead]), list(command)
        host, port = said["gcs"]
        self._gcs = (str(host), int(port))
        self._address = f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
        self._directory = str(said["directory"])
        self._ray = _program_beside(command[ahead], "ray")
        self._python = interpreter_of(self._ray)
        self._environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        self._client = False  # Ray's client server is there, and takes a port
        self._ended: Dict[int, int] = {}  # by PID the status of what was started here and was reaped
        self._runs_here: Set[int] = set()  # PIDs of what was not yet
        self._told_to_end = False
        self._leaving = b""  # what was said last of this node's end
        self._drain: Optional[int] = None  # PID of the program that tells Ray of it; None: Ray has taken it, or nothing
        self._drain_at = 0.0  # monotonic: when it is started again
        self._complaint = ""

    def run(self) -> int:
        """The exit code, negative after a signal."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
        adopt_orphans()
        name_process(RAY_NODE)
        problem = self._look_at_ray()
        if problem:
            write_own(f"{problem}\n".encode("utf-8", "replace"))
            return 126
        return self._lead() if self._said["rank"] == 0 else self._follow()

    def _look_at_ray(self) -> str:
        """Why Ray cannot be run as it has to be; empty: it can."""
        try:
            command = [*self._entrypoint, self._python, "-c", _PROBE]
            found = subprocess.run(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   preexec_fn=_as_usual, check=True)  # fmt: skip
            version, client = found.stdout.decode().split()[-2:]
        except (OSError, ValueError, subprocess.CalledProcessError):
            return f"Ray is not there: {self._python} has no package ray; install ray[default] in the image"
        self._client = client == "1"
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if os.environ.get("RAY_AUTH_MODE") == "token" and numbers < FIRST_WITH_TOKENS:
            words = f"Ray {version} takes orders from whoever reaches it: use Ray 2.52 or later, which asks for a token"
            return f"{words}, or set RAY_AUTH_MODE to disabled where nobody else reaches these nodes"
        return ""

    # Rank 0

    def _lead(self) -> int:
        ray, until, starts = self._start_ray(), time.monotonic() + JOIN_SECONDS, 1
        while True:
            started = self._runs(ray, until)
            problem = self._gathers(ray, until) if started else "Ray did not start on this node"
            if self._told_to_end:
                return -signal.SIGTERM
            if not problem:
                break
            # On a slow machine it gives up by itself, after half a minute; its client server may once it has started,
            # which the others bear where they may join again.
            over = ray not in self._ended or starts > RESTARTS or time.monotonic() > until
            if over or (started and not self._said["joins"]):
                return self._fail(problem, "joined.log" if started and ray not in self._ended else "start.log")
            log_line(f"Ray is started again: {self._tail('start.log')[-300:]}")
            self._end_all()
            ray, starts = self._start_ray(), starts + 1
        log_line(f"Ray has all nodes of {self._said['world']}; the command starts")
        try:
            driver = self._start(self._command, {**self._environment, "RAY_ADDRESS": self._address})
        except OSError as error:
            write_own(f"{self._command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
            return 127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126
        while driver not in self._ended:
            if ray in self._ended and not self._told_to_end:
                return self._fail("Ray ended on this node")
            self._take_turn()
        status = self._ended[driver]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _gathers(self, ray: int, until: float) -> str:
        """Wait until all nodes have joined; what is wrong where they do not."""
        left = max(1.0, until - time.monotonic())
        waiting = self._start_python(_JOINED, self._address, str(self._said["world"]), str(left), log="joined.log")
        while waiting not in self._ended and ray not in self._ended and not self._told_to_end:
            self._take_turn()
        if ray in self._ended:
            return "Ray ended on this node"
        return NOT_ALL if self._ended.get(waiting) else ""

    def _runs(self, ray: int, until: float) -> bool:
        """Wait until `ray start` says that it has started Ray here. False: it ended without, or takes too long."""
        while ray not in self._ended and not self._told_to_end and time.monotonic() < until:
            if STARTED in self._tail("start.log") and self._reaches_head():
                return True
            self._take_turn()
        return ray in self._ended and STARTED in self._tail("start.log")

    # The others

    def _follow(self) -> int:
        begun: List[float] = []
        while True:
            if not self._wait(self._reaches_head):
                return 0
            ray, seen = self._start_ray(), False
            begun.append(time.monotonic())
            started = self._runs(ray, begun[-1] + JOIN_SECONDS)
            while ray not in self._ended and not self._told_to_end:
                lives = any(process.name == RAYLET for process in other_processes())
                if seen and not lives and not self._leaving:
                    break  # it was asked to end by somebody else, which `ray start` takes for good
                seen = seen or lives
                self._take_turn(1.0)
            # Without its head no node of Ray stays, and that is not its fault.
            self._wait(lambda: bool(self._leaving) or self._reaches_head())
            if self._leaving and not self._told_to_end:  # Ray would be given work here again
                log_line("Ray ended on this node, which is left: it is not started again")
                self._wait(lambda: False)
            if self._told_to_end:
                self._wait(lambda: not self._reaches_head(), until_told=False)
                return 0
            begun = [moment for moment in begun if time.monotonic() - moment < RESTARTS_WITHIN]
            if (started and not self._said["joins"]) or len(begun) > RESTARTS:
                return self._fail("Ray ended on this node")
            log_line(f"Ray ended on this node and is started again: {self._tail('start.log')[-300:]}")
            self._end_all()

    def _wait(self, condition: Callable[[], bool], *, until_told: bool = True) -> bool:
        """Until the condition holds: True. False: it was told to end before."""
        while not condition():
            if until_told and self._told_to_end:
                return False
            self._take_turn()
        return True

    # Ray

    def _start_ray(self) -> int:
        dashboard_agent, client = _free_ports(2)
        command = [
            self._ray, "start", "--block", f"--node-ip-address={self._said['address']}",
            f"--temp-dir={self._directory}", "--min-worker-port=0", "--max-worker-port=0",
            f"--dashboard-agent-listen-port={dashboard_agent}",
        ]  # fmt: skip
        if self._said["node"]:
            command.append(f"--node-name={self._said['node']}")
        if self._said["rank"] == 0:
            command += ["--head", f"--port={self._gcs[1]}", f"--dashboard-host={self._said['address']}"]
            _, _, port = str(self._said["dashboard"]).rpartition(":")
            command += [f"--dashboard-port={port}"] if port else []
            command += [f"--ray-client-server-port={client}"] if self._client else []
        else:
            command.append(f"--address={self._address}")
        with open(os.path.join(self._directory, "start.log"), "wb") as log:
            return self._start([*self._entrypoint, *command, *self._arguments], self._environment, log.fileno())

    def _start_python(self, program: str, *arguments: str, log: str) -> int:
        """A program in the Python that has Ray."""
        command = [*self._entrypoint, self._python, "-c", program, *arguments]
        with open(os.path.join(self._directory, log), "wb") as stream:
            return self._start(command, self._environment, stream.fileno())

    def _start(self, command: Sequence[str], environment: Dict[str, str], log: Optional[int] = None) -> int:
        """With a ``log`` it is Ray's own, which is not to hear what the program is asked."""
        process = subprocess.Popen(
            list(command), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=log is not None, preexec_fn=_as_usual,
        )  # fmt: skip
        process.returncode = 0  # it is reaped here
        self._runs_here.add(process.pid)
        self._ended.pop(process.pid, None)  # PIDs come again
        return process.pid

    def _reaches_head(self) -> bool:
        try:
            socket.create_connection(self._gcs, timeout=2.0).close()
        except OSError:
            return False
        return True

    def _end_all(self) -> None:
        """Ray's processes of this node, however they left their parents."""
        while True:
            others = other_processes()
            if not others:
                return
            for process in others:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)
            self._take_turn(0.05)

    def _fail(self, words: str, log: str = "start.log") -> int:
        """Say why it ends badly."""
        write_own(f"{self._tail(log)}\nlockstep: {words}\n".encode("utf-8", "replace"))
        return 1

    def _tail(self, log: str) -> str:
        try:
            with open(os.path.join(self._directory, log), "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError as error:
            return trouble(error)

    # What happens meanwhile

    def _take_turn(self, seconds: float = TURN_SECONDS) -> None:
        """Wait for something to happen, and take it in."""
        happened = signal.sigtimedwait(_WAKING, seconds)
        if happened is not None and happened.si_signo != signal.SIGCHLD:
            self._told_to_end = True
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                if pid in self._runs_here:  # else it is an orphan of Ray's
                    self._runs_here.remove(pid)
                    self._ended[pid] = status
        self._drain_if_leaving()

    def _drain_if_leaving(self) -> None:
        """Tell Ray that this node is to be left: it gives it nothing more, and Ray Train saves. Again until it has
        taken it: it may not answer for a moment, or not have this node yet."""
        try:
            with open(os.path.join(self._directory, DRAIN_FILE), "rb") as stream:
                said = stream.read(4096)
            until, why = float(json.loads(said)["until"]), str(json.loads(said)["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if self._said["rank"] == 0:
            return
        left = until - time.time()
        if said != self._leaving:
            self._leaving = said
            log_line(f"Ray is told that this node is left within {left:.0f} s: {why}")
        elif self._drain is None or self._drain not in self._ended:
            return
        elif not self._ended[self._drain]:
            self._drain = None
            return
        elif left < 0 or time.monotonic() < self._drain_at:
            return
        else:
            words = f"Ray has not taken that this node is left, and is told again: {self._tail('drain.log')[-300:]}"
            if words != self._complaint:
                log_line(words)
            self._complaint = words
        self._drain_at = time.monotonic() + DRAIN_AGAIN_SECONDS
        arguments = (self._address, str(self._said["address"]), str(until), why)
        self._drain = self._start_python(_DRAIN, *arguments, log="drain.log")


def _program_beside(command: str, name: str) -> str:
    """The program of that name that belongs to a command: beside it, else the first in PATH."""
    directory, _ = os.path.split(command)
    beside = os.path.join(directory, name)
    if directory and os.access(beside, os.X_OK):
        return beside
    return shutil.which(name) or name


def _free_ports(count: int) -> List[int]:
    """TCP ports that nobody has at the moment."""
    held: List[Tuple[int, socket.socket]] = []
    for port in random.sample(PORTS, 200):
        candidate = socket.socket()
        try:
            candidate.bind(("", port))
            held.append((port, candidate))
        except OSError:
            candidate.close()
        if len(held) == count:
            break
    for _, each in held:
        each.close()
    return [port for port, _ in held]


def _as_usual() -> None:
    """Signals reach what is started here."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAKING)


def main(said: str, words: Sequence[str]) -> NoReturn:
    """``said``: JSON of what this node is. ``words``: further arguments of ``ray start``, then entrypoint and command.

    Ends as the command did, by a signal where that was its end."""
    options = json.loads(said)
    count = options["arguments"]
    code = RayNode(options, words[:count], words[count:]).run()
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
        code = 128 - code
    sys.stderr.flush()
    os._exit(code)
