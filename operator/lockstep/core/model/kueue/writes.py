"""What is to be written to a Workload, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class WorkloadVerb(StrEnum):
    """How a Workload is written."""

    CREATE = "Create"
    AMEND = "Amend"  # merge ``body``, if it is as it was seen
    TELL = "Tell"  # merge ``body`` into its status, if it is as it was seen
    DELETE = "Delete"  # with its UID as precondition
    FIND = "Find"  # read it: it is not seen, and may only have lost the labels by which it is watched


@dataclass(frozen=True, slots=True)
class WorkloadWrite:
    """One write. ``resource_version`` guards it: one that changed since is reconciled again instead."""

    verb: WorkloadVerb
    namespace: str
    name: str
    why: str
    uid: str = ""
    resource_version: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
