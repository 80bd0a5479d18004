"""`mpirun hostname` on many machines of this one: processes started by steps, beside a real sshd on each machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from harness.machines import Machines, MachinesError, machines
from harness.step_gang import RUN_UID, Authority
from lockstep.worker.launchers import mpi
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch
from lockstep.worker.steps.credentials import AttemptGang, Peer, write_credentials
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.programs import offer_programs

SCRATCH = "/run/lockstep"
_STEPS = f"{SCRATCH}/a1/steps"
_KEYS = f"{SCRATCH}/keys"
_PORT = 7000
_SSH = f"ssh -i {_KEYS}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
_SSHD = (
    f"-D -e -f /dev/null -h {_KEYS}/key -o AuthorizedKeysFile={_KEYS}/key.pub -o StrictModes=no -o UsePAM=no "
    "-o MaxStartups=1000 -o PermitRootLogin=yes"
)
_SERVER = """
import json, os, socket, sys
sys.path.insert(0, sys.argv[1])
from lockstep.worker.steps.server import main
listener = socket.create_server((sys.argv[2], int(sys.argv[3])), backlog=512)
_, ends = os.pipe()
os._exit(main(json.dumps({"listen": listener.fileno(), "ends": ends, "own": []})))
"""
_SECONDS = 30.0


class NotHereError(Exception):
    """What it takes is not there; the words say what."""


def compared(mpirun: str, count: int, rounds: int) -> dict[str, float]:
    """Median seconds of `mpirun hostname` by steps and by sshd, in turns, their ratio, and how often it never ended.

    Raises NotHereError.
    """
    program, sshd = shutil.which(mpirun), shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if not program or not sshd or os.geteuid():
        raise NotHereError("it takes root, an sshd, and an mpirun of Open MPI (--mpirun)")
    try:
        with machines(count) as made, _served(made, sshd, str(Path(program).parent)) as (by_steps, by_sshd):
            taken: dict[str, list[float]] = {"steps": [], "sshd": []}
            hung = dict.fromkeys(taken, 0)
            for turn in range(rounds + 1):
                for name, environment in (("steps", by_steps), ("sshd", by_sshd)):
                    try:
                        seconds = _hostnames(made, program, environment)
                    except subprocess.TimeoutExpired:  # Open MPI 5.0.11 does so now and then, also by sshd
                        hung[name] += 1
                        continue
                    taken[name] += [seconds] * (turn > 0)  # at first files are read
                    print(f"mpirun hostname on {count} machines by {name}: {seconds:.3f} s", flush=True)
    except MachinesError as error:
        raise NotHereError(str(error)) from None
    steps, over_ssh = median(taken["steps"]), median(taken["sshd"])
    return {
        "mpirun_s": round(steps, 4),
        "mpirun_sshd_s": round(over_ssh, 4),
        "ratio_sshd": round(steps / over_ssh, 3),
        "mpirun_hung": hung["steps"],
        "mpirun_sshd_hung": hung["sshd"],
    }


@contextmanager
def _served(made: Machines, sshd: str, programs: str) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """A step server and an sshd on each machine: the environments of those who start something by these."""
    with ExitStack() as stack:
        environments = _environments(made, programs)
        authority = Authority()
        gang = AttemptGang(
            RUN_UID, 1, 0, [Peer(address, _PORT, slot, 1) for slot, address in enumerate(made.addresses)]
        )
        key = made.root(0) / _KEYS.lstrip("/") / "key"
        key.parent.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        for rank, address in enumerate(made.addresses):
            root = made.root(rank)
            scratch = root / SCRATCH.lstrip("/")
            if rank:
                shutil.copytree(key.parent, scratch / "keys")
            (root / "run/sshd").mkdir()
            # What the shell of this machine's own user does at first is no part of it.
            (scratch / "passwd").write_text(f"root:x:0:0::{SCRATCH}:/bin/sh\nsshd:x:1:1::/run/sshd:/bin/false\n")
            subprocess.run(made.command(rank, ["mount", "--bind", f"{SCRATCH}/passwd", "/etc/passwd"]), check=True)
            (scratch / "a1").mkdir()
            issued = authority.issue(gang.identity(rank))
            for path, text in mpi.hostfiles(_settings(SCRATCH), _launch(made)).items():
                (root / path.lstrip("/")).write_text(text, encoding="utf-8")
            write_credentials(str(scratch / "a1/steps"), gang._replace(rank=rank), authority.certificate, *issued)
            offer_programs(_settings(str(scratch)))
            server = [sys.executable, "-ISc", _SERVER, str(Path(mpi.__file__).parents[3]), address, str(_PORT)]
            for command in (server, [sshd, *_SSHD.split()]):
                process = subprocess.Popen(
                    made.command(rank, command), env={**environments[0], "LOCKSTEP_NODE_RANK": str(rank)},
                    stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                stack.callback(process.wait)
                stack.callback(process.kill)
        _until_all_listen(made)
        yield environments


def _until_all_listen(made: Machines) -> None:
    deadline = time.monotonic() + _SECONDS
    tables = [made.root(rank) / "proc" / str(pid) / "net/tcp" for rank, pid in enumerate(made.pids)]
    wanted = [f":{port:04X} 00000000:0000 0A" for port in (_PORT, 22)]
    while not all(each in table.read_text() for table in tables for each in wanted):
        if time.monotonic() > deadline:
            raise NotHereError("a step server or an sshd does not listen")
        time.sleep(0.05)


def _environments(made: Machines, programs: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What mpirun is told, by whom it is to start its daemons: by steps, as workers say it, and by sshd."""
    own = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": SCRATCH}
    by_steps = {**own, VARIABLE: _STEPS, **mpi.environment(_settings(SCRATCH), _launch(made), own, "eth0")}
    return by_steps, by_steps | dict.fromkeys(("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"), _SSH)


def _hostnames(made: Machines, mpirun: str, environment: Mapping[str, str]) -> float:
    """Seconds until all have said theirs."""
    begun = time.monotonic()
    done = subprocess.run(
        made.command(0, [mpirun, "-n", str(len(made.pids)), "hostname"]), env=environment, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, timeout=_SECONDS,
    )  # fmt: skip
    taken = time.monotonic() - begun
    assert sorted(done.stdout.split()) == sorted(f"node-{rank}" for rank in range(len(made.pids))), json.dumps(
        done.stderr
    )
    return taken


def _launch(made: Machines) -> Launch:
    return Launch(1, 0, len(made.addresses), made.addresses[0], 29500, "", "", made.addresses)


def _settings(scratch: str) -> Settings:
    return Settings(
        operator_url="https://127.0.0.1:1", namespace="team", run="bench", run_uid=RUN_UID, slot=0, incarnation=1,
        pod_uid="p", command=["mpirun"], launcher="MPI", launcher_options={"slotsPerNode": 1}, scratch=scratch,
    )  # fmt: skip
