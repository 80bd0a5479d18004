"""Index of held GPUs by who is charged. Of runs that have not changed since the last cycle nothing is counted."""

from collections import Counter
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import TypeVar

from lockstep.core.admission.queueing.fair_share import ChargedUsage, Key
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.snapshot import RunView
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

    def update(self, runs: Collection[RunView]) -> None:
        """Take in all runs there are. Views are never changed: one that is the same object says the same."""
        known = self._counted.get
        for run in runs:
            counted = known(run.uid)
            if counted is None or counted.run is not run:
                self._replace(counted, _Counted(run, share_key(run), ChargedUsage.from_runs((run,)), is_test_only(run)))
        if len(self._counted) > len(runs):
            present = {run.uid for run in runs}
            for uid in [uid for uid in self._counted if uid not in present]:
                self._replace(self._counted.pop(uid), None)

    @property
    def held(self) -> ChargedUsage:
        """What runs hold, spares included."""
        return ChargedUsage(dict(self._nodes), dict(self._gpus))

    @property
    def present(self) -> Set[Key]:
        """Who has runs that want, hold or held nodes."""
        return self._present.keys()

    @property
    def asking(self) -> Set[Key]:
        """Who has runs that only ask when they would start."""
        return self._asking.keys()

    def _replace(self, old: _Counted | None, new: _Counted | None) -> None:
        if new is not None:
            self._counted[new.run.uid] = new
            self._count(new, +1)
        if old is not None:
            self._count(old, -1)

    def _count(self, counted: _Counted, sign: int) -> None:
        for key, nodes in counted.holding.nodes.items():
            _add(self._nodes, key, sign * nodes)
        for queue, gpus in counted.holding.gpus.items():
            _add(self._gpus, queue, sign * gpus)
        if counted.asks:
            _add(self._asking, counted.key, sign)
        elif counted.run.spec is not None:
            _add(self._present, counted.key, sign)


def _add(counter: Counter[_K], key: _K, more: int) -> None:
    counter[key] += more
    if not counter[key]:
        del counter[key]
