"""Where the files of steps are, and which rank they say that this node has."""

from __future__ import annotations

import json
import os
from typing import Optional

VARIABLE = "LOCKSTEP_STEPS_DIR"  # in the environment of the program and of its steps
PEERS = "peers.json"


def own_rank(directory: str) -> Optional[int]:
    """That of the node; None where no file says it."""
    try:
        with open(os.path.join(directory, PEERS)) as stream:
            return int(json.load(stream)["rank"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
