"""What the pod says: fixed for its life."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

JSON = Dict[str, Any]

ORPHAN_SECONDS = 600.0
TERMINATION_GRACE = 60.0
LOCAL, SHARED = "local", "shared"
LOCAL_SKEW = 1.0  # seconds; one machine, one clock
# Times come from the file server mostly, on some file systems from each client.
SHARED_SKEW = float(os.environ.get("LOCKSTEP_SHARED_CLOCK_SKEW") or 2.0)
TRUST_TIMES = os.environ.get("LOCKSTEP_TRUST_TIMES") != "no"  # the order of files' times is held against a save


def processes_per_node(launcher: str, options: Mapping[str, Any], gpus: int) -> int:
    """How many processes of the framework a node runs; 0 where the user's own command decides."""
    return int(options.get("nprocPerNode") or gpus) if launcher == "Torchrun" else 0


PROCESSES_PER_NODE = processes_per_node(
    os.environ.get("LOCKSTEP_LAUNCHER", ""),
    json.loads(os.environ.get("LOCKSTEP_LAUNCHER_OPTIONS") or "{}"),
    int(os.environ.get("LOCKSTEP_GPUS") or 0),
)


class Tier(NamedTuple):
    """Where checkpoints of the run are: ``root`` holds a directory per run UID."""

    name: str
    root: str
    skew: float  # seconds by which a file may be younger than its commit


@dataclass(frozen=True)
class Settings:
    """Fixed for the pod's life. Everything that changes from attempt to attempt comes with START."""

    operator_url: str
    namespace: str
    run: str
    run_uid: str
    slot: int
    incarnation: int
    pod_uid: str
    command: Sequence[str]
    node: str = ""
    address: str = ""
    gpus: int = 0
    gpus_required: bool = False
    launcher: str = "Plain"
    launcher_options: JSON = field(default_factory=dict)
    checkpoint_format: str = "Auto"
    tiers: Dict[str, Tier] = field(default_factory=dict)  # by name
    fenced: bool = False  # the run insists on one fixed directory, which two attempts could write to
    scratch: str = "/run/lockstep"
    token_file: str = "/var/run/secrets/lockstep.dev/token"
    ca_file: str = ""
    orphan_seconds: float = ORPHAN_SECONDS
    save_signal: int = 0  # asks the program for a save; 0: none does
    termination_grace: float = TERMINATION_GRACE  # seconds between SIGTERM to the pod and SIGKILL
    termination_log: str = "/dev/termination-log"
    start_root: str = ""  # checkpoints of another run, or of none, that this one may start from
    start_run_uid: str = ""  # what they say of themselves; empty: whatever
    start_step: Optional[int] = None  # this one alone
    start_copied: bool = False  # they are copies, whose times say nothing
    min_disk: int = 0  # bytes that must be free where local checkpoints go
    places: Sequence[str] = ()  # beside the command: variables and lines of a batch script that have a path in them

    @classmethod
    def from_environment(cls, environ: Any, arguments: Sequence[str]) -> Settings:
        """Raises KeyError or ValueError when the pod was not made by Lockstep."""
        command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
        if not command:
            raise ValueError("there is no command to run")
        checkpoint = json.loads(environ.get("LOCKSTEP_CHECKPOINT_CONFIG", "{}"))
        skew = {LOCAL: LOCAL_SKEW, SHARED: SHARED_SKEW}
        token_file = environ.get("LOCKSTEP_TOKEN_FILE", cls.token_file)
        options = json.loads(environ.get("LOCKSTEP_LAUNCHER_OPTIONS", "{}"))
        return cls(
            operator_url=environ["LOCKSTEP_OPERATOR_URL"],
            namespace=environ["LOCKSTEP_NAMESPACE"],
            run=environ["LOCKSTEP_RUN"],
            run_uid=environ["LOCKSTEP_RUN_UID"],
            slot=int(environ["LOCKSTEP_SLOT"]),
            incarnation=int(environ["LOCKSTEP_INCARNATION"]),
            pod_uid=environ["LOCKSTEP_POD_UID"],
            command=command,
            node=environ.get("LOCKSTEP_NODE_NAME", ""),
            address=environ.get("LOCKSTEP_HOST_IP") or environ.get("LOCKSTEP_POD_IP", ""),
            gpus=int(environ.get("LOCKSTEP_GPUS", 0)),
            gpus_required=environ.get("LOCKSTEP_CHECK_GPUS") == "1",
            launcher=environ.get("LOCKSTEP_LAUNCHER", cls.launcher),
            launcher_options=options,
            checkpoint_format=checkpoint.get("format", cls.checkpoint_format),
            tiers={name: Tier(name, checkpoint[name], skew[name]) for name in skew if checkpoint.get(name)},
            fenced=checkpoint.get("layout") == "Shared",
            start_root=checkpoint.get("start", {}).get("root", ""),
            start_run_uid=checkpoint.get("start", {}).get("runUid", ""),
            start_step=checkpoint.get("start", {}).get("step"),
            start_copied=checkpoint.get("start", {}).get("acceptCopy") is True,
            scratch=environ.get("LOCKSTEP_SCRATCH", cls.scratch),
            token_file=token_file,
            ca_file=environ.get("LOCKSTEP_CA_FILE", os.path.join(os.path.dirname(token_file), "ca.crt")),
            orphan_seconds=float(environ.get("LOCKSTEP_ORPHAN_SECONDS", ORPHAN_SECONDS)),
            save_signal=int(signal.Signals[checkpoint["signal"]]) if checkpoint.get("signal") else 0,
            termination_grace=float(environ.get("LOCKSTEP_TERMINATION_GRACE", TERMINATION_GRACE)),
            termination_log=environ.get("LOCKSTEP_TERMINATION_LOG", cls.termination_log),
            min_disk=int(json.loads(environ.get("LOCKSTEP_PREFLIGHT", "{}")).get("minDisk", 0)),
            places=places_of(environ, options),
        )


def places_of(environ: Mapping[str, str], options: Mapping[str, Any]) -> Sequence[str]:
    """What may name a directory that the program saves in: its variables, and what the operator took from a script."""
    theirs = ((name, value) for name, value in environ.items() if "/" in value and not name.startswith("LOCKSTEP_"))
    return (*(f"{name}={value}" for name, value in theirs), *map(str, options.get("places", ())))


def is_elsewhere(settings: Settings, path: str) -> bool:
    """In the directory that the run may start from, and not its own."""
    root, tier = settings.start_root, settings.tiers.get(SHARED)
    if not root or not path.startswith(root + "/") or settings.run_uid in path.split("/"):
        return False
    # Its own one directory may lie within that.
    own = settings.fenced and tier is not None and tier.root.startswith(root + "/")
    return not (own and tier is not None and path.startswith(tier.root + "/"))


def attempt_directory(settings: Settings, name: str, attempt: int) -> str:
    """Where an attempt saves in the tier of that name; empty when the run has no such tier."""
    tier = settings.tiers.get(name)
    if tier and name == SHARED and settings.fenced:
        return tier.root
    return os.path.join(tier.root, settings.run_uid, f"a{attempt}") if tier else ""
