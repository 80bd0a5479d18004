"""What one attempt gives to the child: its environment and its command line."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
from typing import Any, Dict, List, Mapping

from lockstep.worker.launchers import mpi, ray
from lockstep.worker.launchers.interpreter import interpreter_of
from lockstep.worker.settings import JSON, LOCAL, SHARED, Settings, attempt_directory
from lockstep.worker.start import Launch

CONTRACT = "1"  # of the child's environment
TOGETHER_SECONDS = 1.0  # that the operator may hold a start back at most, until all were told


def is_passed_on(name: str) -> bool:
    """Whether the child gets this variable of the pod: all but what steers the worker. Arrays are for the child."""
    return not name.startswith("LOCKSTEP_") or name.startswith("LOCKSTEP_ARRAY_")


def contract_environment(settings: Settings, launch: Launch) -> Dict[str, str]:
    """The LOCKSTEP_ variables of one attempt (docs/worker.md)."""
    scratch = os.path.join(settings.scratch, f"a{launch.attempt}")
    return {
        "LOCKSTEP_CONTRACT": CONTRACT,
        "LOCKSTEP_RUN": settings.run,
        "LOCKSTEP_RUN_UID": settings.run_uid,
        "LOCKSTEP_ATTEMPT": str(launch.attempt),
        "LOCKSTEP_NODE_RANK": str(launch.rank),
        "LOCKSTEP_NNODES": str(launch.world),
        "LOCKSTEP_NODELIST_FILE": os.path.join(scratch, "nodelist"),
        "LOCKSTEP_MASTER_ADDR": launch.master_address,
        "LOCKSTEP_MASTER_PORT": str(launch.master_port),
        "LOCKSTEP_RESUME_PATH": launch.resume_path,
        "LOCKSTEP_RESUME_STEP": launch.resume_step,
        "LOCKSTEP_RESUME_DIR": os.path.dirname(launch.resume_path),  # what loaders that follow a pointer want
        "LOCKSTEP_CHECKPOINT_DIR": attempt_directory(settings, SHARED, launch.attempt),
        "LOCKSTEP_LOCAL_CHECKPOINT_DIR": attempt_directory(settings, LOCAL, launch.attempt),
        "LOCKSTEP_PROGRESS_FILE": os.path.join(scratch, "progress.jsonl"),
        "LOCKSTEP_CONTROL_FILE": os.path.join(scratch, "control.json"),
        "LOCKSTEP_SAVED_FILE": os.path.join(scratch, "saved"),
        "LOCKSTEP_STACK_FILE": os.path.join(scratch, "stacks"),
    }


def python_environment(settings: Settings, launch: Launch, environ: Mapping[str, str]) -> Dict[str, str]:
    """What lets Python find ``lockstep_training`` and print as it goes, and torchrun leave its first failure.

    What is set comes first.
    """
    paths = [path for path in (environ.get("PYTHONPATH"), python_directory(settings)) if path]
    error_file = os.path.join(settings.scratch, f"a{launch.attempt}", "error.json")
    made = {
        "PYTHONPATH": os.pathsep.join(paths),
        "TORCHELASTIC_ERROR_FILE": environ.get("TORCHELASTIC_ERROR_FILE") or error_file,
    }
    # Without a buffer each word of a line is written by itself: ranks that share an output would mix theirs.
    if settings.launcher not in ("MPI", "Slurm"):
        made["PYTHONUNBUFFERED"] = environ.get("PYTHONUNBUFFERED", "1")
    return made


def python_directory(settings: Settings) -> str:
    """Where modules for the program are."""
    return os.path.join(settings.scratch, "python")


def start_delay(launch: Launch, desired: JSON) -> float:
    """Seconds from START until this rank's turn: once all were told of it, then spread evenly over the jitter.

    Raises TypeError, ValueError.
    """
    together = max(0.0, min(TOGETHER_SECONDS, float(desired.get("startIn") or 0.0)))
    jitter = float(desired.get("jitterSeconds") or 0.0)
    return together + (jitter * launch.rank / launch.world if launch.world > 0 else 0.0)


def launcher_environment(settings: Settings, launch: Launch) -> Dict[str, str]:
    """The variables that make the framework find its peers."""
    address, port, world, rank = launch.master_address, str(launch.master_port), str(launch.world), str(launch.rank)
    if settings.launcher == "JAX":
        host = f"[{address}]" if ":" in address else address
        return {"JAX_COORDINATOR_ADDRESS": f"{host}:{port}", "JAX_NUM_PROCESSES": world, "JAX_PROCESS_ID": rank}
    if settings.launcher == "MPI":
        rendezvous = {"MASTER_ADDR": address, "MASTER_PORT": port}
        return {**rendezvous, **mpi.environment(settings, launch, os.environ, mpi.interface_of(settings.address))}
    if settings.launcher == "Slurm":  # the script makes its own
        return mpi.surroundings(settings, launch, os.environ, mpi.interface_of(settings.address))
    if settings.launcher == "Ray":
        return ray.environment(settings, launch, os.environ)
    if settings.launcher in ("Torchrun", "DeepSpeed"):
        return {}  # they get it by argument and set the rest themselves
    environment = {
        "MASTER_ADDR": address, "MASTER_PORT": port, "NNODES": world, "NODE_RANK": rank, "PET_NNODES": world,
        "PET_NODE_RANK": rank, "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port, "PET_RDZV_BACKEND": "static",
    }  # fmt: skip
    if settings.gpus:
        environment["PET_NPROC_PER_NODE"] = os.environ.get("PET_NPROC_PER_NODE") or str(settings.gpus)
    return environment


def command_environment(settings: Settings, environment: Mapping[str, str]) -> Dict[str, str]:
    """Of the program. What MPICH's or Intel's mpirun has becomes the ranks', on nodes with numbers of their own."""
    path = os.pathsep.join([*map(os.path.dirname, settings.command[:1]), environment.get("PATH", "")])
    left_out = {"LOCKSTEP_NODE_RANK"} if settings.launcher == "MPI" and mpi.is_hydra(path) else set()
    return {name: value for name, value in environment.items() if name not in left_out}


def launcher_command(settings: Settings, launch: Launch) -> List[str]:
    """The command as the launcher wants it: Torchrun replaces the interpreter, DeepSpeed what stands in front of the
    script, Ray has it run by what runs on each node; the others change nothing."""
    if settings.launcher == "Ray":
        return ray.command(settings, launch)
    if settings.launcher == "DeepSpeed":
        return _one_node_of_deepspeed(settings, launch)
    if settings.launcher != "Torchrun":
        return list(settings.command)
    # An entrypoint stands in front of the command and has to stay there.
    ahead = int(settings.launcher_options.get("entrypoint") or 0)
    processes = settings.launcher_options.get("nprocPerNode") or settings.gpus or 1
    head, command = settings.command[:ahead], settings.command[ahead:]
    torchrun = [
        "torchrun", f"--nnodes={launch.world}", f"--node-rank={launch.rank}", f"--nproc-per-node={processes}",
        f"--master-addr={launch.master_address}", f"--master-port={launch.master_port}",
    ]  # fmt: skip
    directory, program = os.path.split(command[0])
    if re.match(r"python[0-9.]*$", program):
        torchrun[0] = os.path.join(directory, "torchrun")  # that of the interpreter which the user named
        script = list(itertools.dropwhile("-u".__eq__, command[1:]))
        if script and (script[0] == "-m" or not script[0].startswith("-")):
            command = script  # torchrun starts the interpreter itself, with -u
        else:
            torchrun.append("--no-python")  # it would lose the interpreter's other options
    elif not program.endswith(".py") and program != "-m":
        torchrun.append("--no-python")
    return [*head, *torchrun, *command]


def _one_node_of_deepspeed(settings: Settings, launch: Launch) -> List[str]:
    """What ``deepspeed`` would start on this node, had it the gang for its list of nodes."""
    options = settings.launcher_options
    ahead, words = int(options.get("entrypoint") or 0), int(options.get("words") or 1)
    head, command = settings.command[:ahead], settings.command[ahead:]
    processes = list(range(int(options.get("slotsPerNode") or settings.gpus or 1)))
    # Their names mean nothing to it, but for its log: they only have to be different.
    distinct = len(set(launch.nodelist)) == launch.world
    nodes = launch.nodelist if distinct else [f"node{rank}" for rank in range(launch.world)]
    world = json.dumps(dict.fromkeys(nodes, processes), separators=(",", ":")).encode("ascii")
    flags = [command[flag] if isinstance(flag, int) else str(flag) for flag in options.get("flags") or ()]
    return [
        *head, interpreter_of(command[0]), "-u", "-m", "deepspeed.launcher.launch",
        f"--world_info={base64.urlsafe_b64encode(world).decode('ascii')}", f"--node_rank={launch.rank}",
        f"--master_addr={launch.master_address}", f"--master_port={launch.master_port}", *flags, *command[words:],
    ]  # fmt: skip


def expand(argument: str, variables: Dict[str, str]) -> str:
    """As the kubelet does it, for LOCKSTEP_ variables only: ``$(X)`` becomes its value, ``$$(X)`` the text ``$(X)``.

    An unknown name stays. Other names are none of ours: the kubelet has expanded them already.
    """

    def replacement(matched: Any) -> str:
        dollars, name = matched.groups()
        text = f"({name})"
        if len(dollars) % 2:
            text = variables.get(name, "$" + text)
        return str("$" * (len(dollars) // 2) + text)

    return re.sub(r"(\$+)\((LOCKSTEP_[A-Z0-9_]+)\)", replacement, argument)
