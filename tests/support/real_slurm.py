"""A real Slurm of three machines, unpacked from Debian's packages: what ours is compared with."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness.machines import Machines, MachinesError, machines
from support.mpi import PREFIXES

PREFIX = PREFIXES / "debian"
MISSING = f"no Slurm of Debian in {PREFIX}: see CONTRIBUTING.md"
FIRST_JOB = 4000  # no script prints such numbers by chance
CPUS, NODES = 4, ("n1", "n2", "n3")
_LIBRARIES = PREFIX / "usr" / "lib" / "x86_64-linux-gnu"
_READY_SECONDS = 30.0
_CONF = """
ClusterName=main
SlurmctldHost=node-0(10.77.0.1)
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket,cred_expire=30
CredType=cred/munge
PluginDir={libraries}/slurm-wlm
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/ctl.pid
SlurmdPidFile=/run/slurm/d.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
FirstJobId={first_job}
{nodes}
PartitionName=gpu Nodes=n[1-3] Default=YES MaxTime=INFINITE OverSubscribe=EXCLUSIVE
"""
_SETUP = """
mkdir -p /run/slurm/state /run/slurm/spool /run/sbin
for program in slurmctld slurmd slurmstepd; do ln -s {prefix}/usr/sbin/$program-wlm /run/sbin/$program; done
printf '#!/bin/sh\n' > /run/sbin/module && chmod +x /run/sbin/module
mount -t overlay overlay -o lowerdir=/run/sbin:/usr/sbin /usr/sbin
cp /etc/hosts /run/hosts && cat {folder}/hosts >> /run/hosts && mount --bind /run/hosts /etc/hosts
mount -t tmpfs tmpfs /tmp
{prefix}/usr/sbin/munged --force --key-file={folder}/munge.key --socket=/run/munge.socket \\
    --pid-file=/run/munged.pid --log-file=/run/munged.log --seed-file=/run/munge.seed
"""


def is_there() -> bool:
    return (PREFIX / "usr" / "sbin" / "slurmctld-wlm").exists()


class RealSlurm:
    """Nodes n1 to n3, all in the partition gpu, each with ``gpus``. Commands are run on the first of its machines."""

    def __init__(self, made: Machines, folder: Path, gpus: int = 0) -> None:
        self._machines, self._gpus = made, gpus
        self.folder = folder  # seen by all
        libraries = [_LIBRARIES, _LIBRARIES / "slurm-wlm", PREFIX / "lib" / "x86_64-linux-gnu"]
        self._env = {
            "PATH": f"{PREFIX}/usr/bin:/usr/sbin:/usr/bin:/bin:/sbin",
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "SLURM_CONF": str(folder / "slurm.conf"),
            "HOME": "/root",
        }

    def shell(self, text: str, machine: int = 0, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._machines.command(machine, ["/bin/sh", "-c", text]), env=self._env, capture_output=True, text=True,
            timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def _gres(self) -> str:
        """What the configuration has before its nodes: their GPUs are some devices, as Slurm takes no other files."""
        if not self._gpus:
            return ""
        for number in range(self._gpus):
            (self.folder / f"gpu{number}").symlink_to("/dev/null")
        files = f"{self.folder}/gpu[0-{self._gpus - 1}]"
        (self.folder / "gres.conf").write_text(f"Name=gpu File={files}\n", encoding="utf-8")
        return f"GresTypes=gpu\nNodeName=DEFAULT Gres=gpu:{self._gpus}\n"

    def start(self) -> None:
        """Raises MachinesError."""
        nodes = self._gres() + "\n".join(
            f"NodeName={name} NodeAddr={address} NodeHostname=node-{index} CPUs={CPUS}"
            for index, (name, address) in enumerate(zip(NODES, self._machines.addresses, strict=True))
        )
        conf = _CONF.format(libraries=_LIBRARIES, nodes=nodes, first_job=FIRST_JOB)
        (self.folder / "slurm.conf").write_text(conf, encoding="utf-8")
        hosts = (f"{address} node-{index} {NODES[index]}\n" for index, address in enumerate(self._machines.addresses))
        (self.folder / "hosts").write_text("".join(hosts), encoding="utf-8")
        (self.folder / "munge.key").write_bytes(b"x" * 128)
        (self.folder / "munge.key").chmod(0o600)
        for machine in range(len(NODES)):
            done = self.shell(f"set -e\n{_SETUP.format(prefix=PREFIX, folder=self.folder)}", machine)
            if done.returncode:
                raise MachinesError(done.stderr.strip())
        self.shell(f"slurmctld > {self.folder}/slurmctld.log 2>&1")
        for machine, name in enumerate(NODES):
            self.shell(f"slurmd -N {name} > {self.folder}/{name}.log 2>&1", machine)
        deadline = time.monotonic() + _READY_SECONDS
        while self.shell("sinfo -h -t idle -o %D").stdout.strip() != str(len(NODES)):
            if time.monotonic() > deadline:
                raise MachinesError(f"Slurm has not started: {self.shell('sinfo').stderr.strip()}")
            time.sleep(0.1)


@contextlib.contextmanager
def real_slurm(folder: Path, gpus: int = 0) -> Iterator[RealSlurm]:
    """Raises MachinesError where it cannot be: it takes root."""
    with machines(len(NODES)) as made:
        slurm = RealSlurm(made, folder, gpus)
        slurm.start()
        yield slurm
