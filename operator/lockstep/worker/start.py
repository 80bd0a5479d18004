"""START as one rank is to follow it."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from lockstep.worker.settings import JSON


class Launch(NamedTuple):
    """What START means for this rank."""

    attempt: int
    rank: int
    world: int
    master_address: str
    master_port: int
    resume_path: str
    resume_step: str
    nodelist: Sequence[str]
    steps: Optional[JSON] = None  # certificates and ports for steps; None: there are none
    batch: Optional[JSON] = None  # of `launcher: Slurm`: the job, and on rank 0 its script
    dashboard: str = ""  # host and port of Ray's
    token: str = ""  # a secret that the workers of the attempt share; empty: they need none

    @classmethod
    def from_desired(cls, desired: JSON) -> Launch:
        """From a released reply. Raises KeyError, TypeError."""
        start, resume = desired["start"], desired["start"].get("resume") or {}
        return cls(
            desired["attempt"], desired["rank"], desired["worldSize"], start["masterAddress"], start["masterPort"],
            resume.get("path", ""), str(resume.get("step", "")), desired.get("nodelist") or [],
            desired.get("steps") or None, desired.get("batch") or None, start.get("dashboard") or "",
            desired.get("token") or "",
        )  # fmt: skip
