"""What a shim asks of the client library: one step, as data."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Sequence

NOBODY, EVERYBODY = "none", "all"
SHELL = "/bin/sh"


class ShimTask(NamedTuple):
    """One process of a step. Files are opened on its node; empty: the stream goes to the client."""

    id: int  # unique in the step
    env: Mapping[str, str] = {}  # laid over its part's
    stdout: str = ""
    stderr: str = ""  # the same name as stdout: one file for both
    stdin: str = ""
    append: bool = False


class ShimPart(NamedTuple):
    """What one node is asked for: one connection, one header. A node may have several parts."""

    rank: int
    tasks: Sequence[ShimTask]
    argv: Sequence[str] = ()  # passed on unchanged; empty: ``shell``
    shell: str = ""  # text for SHELL -c, as sshd takes it
    env: Optional[Mapping[str, str]] = None  # None: the node's own


class ShimRequest(NamedTuple):
    """A step."""

    parts: Sequence[ShimPart]
    cwd: Optional[str] = None  # None: the program's own on each node
    stdin: str = NOBODY  # NOBODY, EVERYBODY, or the id of the one task that gets it
    labels: Optional[Mapping[int, str]] = None  # put in front of each line, by task
    detached: bool = False  # the shim ends with code 0 once all have started


class ShimAnswer(NamedTuple):
    """What the shim says by itself, without a step."""

    code: int
    out: str = ""
    err: str = ""
