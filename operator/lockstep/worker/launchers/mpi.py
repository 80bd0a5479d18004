"""MPI: hosts, slots, interfaces and remote start, told to ``mpirun`` by its environment alone.

Open MPI 4 and 5, MPICH and Intel MPI have other names for each; all are set, and each reads its own. Nodes are named
by address, so that no name has to resolve.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import shutil
import socket
import struct
from typing import Dict, List, Mapping, Optional, Sequence

from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch

COMMON_HOSTFILE = "/etc/mpi/hostfile"  # where commands written for other operators look
SHORTEST_PREFIX = 8  # bits of a network that still tells one interface from another
_SIOCGIFADDR = 0x8915


def slots(settings: Settings) -> int:
    """Processes per node: as asked, else one for each GPU, at least one."""
    return int(settings.launcher_options.get("slotsPerNode") or settings.gpus or 1)


def environment(settings: Settings, launch: Launch, own: Mapping[str, str], interface: str) -> Dict[str, str]:
    """What has any mpirun start on the gang's nodes. What ``own``, the pod's environment, says already is left out.

    ``interface``: name of the one with this node's address, or empty.
    """
    scratch = attempt_scratch(settings, launch)
    agent = os.path.join(settings.scratch, "bin", "ssh")  # a login shell would lose PATH
    open_mpi, hydra = os.path.join(scratch, "hostfile"), os.path.join(scratch, "hostfile.hydra")
    made = {
        "OMPI_MCA_orte_default_hostfile": open_mpi, "PRTE_MCA_prte_default_hostfile": open_mpi,
        "HYDRA_HOST_FILE": hydra, "I_MPI_HYDRA_HOST_FILE": hydra,
        "OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent,
        "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_LAUNCHER_AUTOFORK": "0",  # else its daemon here would lack what is this node's own
        "I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        "I_MPI_PERHOST": str(slots(settings)),  # it takes the names of its host file, and the cores for slots
    }  # fmt: skip
    return {
        **{name: value for name, value in made.items() if name not in own},
        **surroundings(settings, launch, own, interface),
    }


def surroundings(settings: Settings, launch: Launch, own: Mapping[str, str], interface: str) -> Dict[str, str]:
    """What any mpirun has to know beside hosts, which a batch job has from srun: interfaces, where sockets go, and what
    stands in front of each rank (MPICH has no such thing)."""
    scratch, network = attempt_scratch(settings, launch), common_network(launch.nodelist)
    holder = os.path.join(settings.scratch, "bin", "lockstep-rank")
    made = {
        "OMPI_MCA_orte_fork_agent": holder, "I_MPI_GTOOL": f"{holder}:all",
        "PRTE_MCA_prte_fork_agent": holder, "PRTE_MCA_prte_rtos": f"exec-agent={holder}",  # by version
        "OMPI_MCA_oob_tcp_if_include": network, "PRTE_MCA_prte_if_include": network,
        "OMPI_MCA_btl_tcp_if_include": network,
        "HYDRA_IFACE": interface, "I_MPI_HYDRA_IFACE": interface, "FI_TCP_IFACE": interface,
        # Their sockets: /tmp need not be writable, and this goes with the attempt.
        "OMPI_MCA_orte_tmpdir_base": scratch, "PRTE_MCA_prte_tmpdir_base": scratch,
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    return {name: value for name, value in made.items() if value and name not in own}


def hostfiles(settings: Settings, launch: Launch) -> Dict[str, str]:
    """Text of each host file by its path: Open MPI's shape, which DeepSpeed reads too, and Hydra's."""
    scratch, count = attempt_scratch(settings, launch), slots(settings)
    return {
        os.path.join(scratch, "hostfile"): "".join(f"{address} slots={count}\n" for address in launch.nodelist),
        os.path.join(scratch, "hostfile.hydra"): "".join(f"{address}:{count}\n" for address in launch.nodelist),
    }


def write_hostfiles(settings: Settings, launch: Launch, path: str, common: str = COMMON_HOSTFILE) -> None:
    """Into the scratch of the attempt, and a link for commands that name ``common``, where that can be made.

    ``path``: PATH of the program, which says whose mpirun would read it. Raises OSError for the scratch alone.
    """
    files = hostfiles(settings, launch)
    for name, text in files.items():
        with open(name, "w") as stream:
            stream.write(text)
    open_mpi, hydra = files
    with contextlib.suppress(OSError):  # not writable, mostly
        os.makedirs(os.path.dirname(common), exist_ok=True)
        if os.path.islink(common) or not os.path.lexists(common):  # a file there is somebody's own
            made = f"{common}.lockstep"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)
            os.symlink(hydra if is_hydra(path) else open_mpi, made)
            os.rename(made, common)


def is_hydra(path: str) -> bool:
    """What PATH has of mpiruns is MPICH's and Intel's alone."""

    def there(programs: List[str]) -> bool:
        return any(shutil.which(program, path=path) for program in programs)

    return there(["mpiexec.hydra"]) and not there(["orterun", "prterun", "deepspeed"])


def common_network(addresses: Sequence[str]) -> str:
    """The smallest network with all of them, as ``10.9.0.0/30``; empty where it would tell no interface from another.

    Only of IPv4: Open MPI reads no other.
    """
    try:
        numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    except ValueError:
        return ""
    if not numbers:
        return ""
    prefix = 32 - (min(numbers) ^ max(numbers)).bit_length()
    network = ipaddress.ip_network((numbers[0], prefix), strict=False)
    return str(network) if prefix >= SHORTEST_PREFIX else ""


def interface_of(address: str) -> str:
    """Name of the interface whose IPv4 address this is, for Hydra, which takes nothing else; or empty."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            if _address_of(any_socket, name) == address:
                return name
    return ""


def attempt_scratch(settings: Settings, launch: Launch) -> str:
    return os.path.join(settings.scratch, f"a{launch.attempt}")


def _address_of(any_socket: socket.socket, interface: str) -> Optional[str]:
    request = struct.pack("256s", interface.encode()[:15])
    try:
        return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24])
    except OSError:  # it has none
        return None
