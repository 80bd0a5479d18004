"""Index of held GPUs by who is charged. Of runs that have not changed since the last cycle nothing is counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

from lockstep.core.admission.queueing.fair_share import ChargedUsage, Key, competes
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.snapshot import RunView, maybe_changed
from lockstep.core.model.test_only import is_test_only

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class _Counted:
    """What one view of a run comes to."""

    run: RunView
    key: Key
    holding: ChargedUsage
    asks: bool  # it only asks when it would start


class UsageIndex:
    """The same as ``ChargedUsage.from_runs`` and two sets of keys, made of all runs."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}
        self._nodes: Counter[Key] = Counter()
        self._gpus: Counter[str] = Counter()
        self._present: Counter[Key] = Counter()
        self._asking: Counter[Key] = Counter()

    def update(self, runs: Iterable[RunView], changed: Mapping[str, RunView | None] | None = None) -> None:
        """Take in all runs there are. ``changed``: see ``maybe_changed``."""
        for uid, run in maybe_changed(changed, runs, self._counted).items():
            counted = self._counted.get(uid)
            if counted is not None and counted.run is not run:
                self._count(self._counted.pop(uid), -1)
            if run is not None and uid not in self._counted:
                new = self._counted[uid] = _Counted(
                    run, share_key(run), ChargedUsage.from_runs((run,)), is_test_only(run)
                )
                self._count(new, +1)

    @property
    def held(self) -> ChargedUsage:
        """What runs hold, spares included."""
        return ChargedUsage(dict(self._nodes), dict(self._gpus))

    @property
    def present(self) -> Set[Key]:
        """Who has runs that want or hold nodes."""
        return self._present.keys()

    @property
    def asking(self) -> Set[Key]:
        """Who has runs that only ask when they would start."""
        return self._asking.keys()

    def _count(self, counted: _Counted, sign: int) -> None:
        for key, nodes in counted.holding.nodes.items():
            _add(self._nodes, key, sign * nodes)
        for queue, gpus in counted.holding.gpus.items():
            _add(self._gpus, queue, sign * gpus)
        if counted.asks:
            _add(self._asking, counted.key, sign)
        elif competes(counted.run):
            _add(self._present, counted.key, sign)


def _add(counter: Counter[_K], key: _K, more: int) -> None:
    counter[key] += more
    if not counter[key]:
        del counter[key]
