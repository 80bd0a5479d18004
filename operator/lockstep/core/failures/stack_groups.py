"""Stacks of many ranks as a few groups: ranks that stand alike are one line, the odd ones out come last."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.core.model.plan import EnsureConfigMap
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.spilled_config_map import immutable_config_map

MAX_GROUPS = 64
STACKS_KEY = "stacks.json"
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b\d{3,}\b")
"""Addresses, process ids: what differs between ranks that stand at the same place. Line numbers do not matter."""


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose stacks read the same."""

    ranks: tuple[int, ...]
    text: str

    @property
    def innermost(self) -> str:
        """The first process and where it stands, for a message."""
        return self.text.partition("\n")[0][:160] or "an unknown place"

    @property
    def is_stopped(self) -> bool:
        """A process of theirs was stopped by a signal or a debugger."""
        return "[stopped" in self.text


def grouped(texts: Mapping[int, str]) -> list[StackGroup]:
    """Groups of ranks, the largest first. ``texts``: what each rank's processes were doing."""
    found: dict[str, list[int]] = {}
    for rank in sorted(texts):
        found.setdefault(_VARIABLE.sub("N", texts[rank]), []).append(rank)
    groups = [StackGroup(tuple(ranks), texts[ranks[0]]) for ranks in found.values()]
    return sorted(groups, key=lambda group: (-len(group.ranks), group.ranks))


def stacks_config_map(run: RunView, attempt: int, taken: str, groups: list[StackGroup]) -> EnsureConfigMap:
    """Where people find them after the pods went on. ``taken`` names the request they answer."""
    name = f"{run.name}-{run.uid[:5]}-stacks-{attempt}"
    rows = [{"ranks": format_ranges(group.ranks), "stacks": group.text} for group in groups[:MAX_GROUPS]]
    data = {"request": taken, STACKS_KEY: json.dumps(rows, indent=1)}
    return immutable_config_map(run.namespace, run.name, run.uid, name, data, optional=True)
