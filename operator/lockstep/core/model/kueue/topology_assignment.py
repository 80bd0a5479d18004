"""Kueue's topology assignment: where it wants how many pods, in rank order.

v1beta2 compresses it: slices of domains whose values share a prefix and a suffix, or are all the same. Undone, it is
a list of domains from the first rank to the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.core.model.kueue import api_names
from lockstep.core.model.plural import plural

MOST_PODS = 100_000
"""Pods of one assignment; more than any gang has is nobody's intent, and would only fill the memory."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One place: the values of the levels' labels, and how many pods go there."""

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """``levels`` are node labels, the widest first. ``domains`` come in rank order."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def names_hosts(self) -> bool:
        """It says for every rank which node."""
        return self.levels[-1] == api_names.HOSTNAME_LEVEL

    @property
    def count(self) -> int:
        """The number of pods."""
        return sum(domain.count for domain in self.domains)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The value of the lowest level for every pod, in rank order."""
        return tuple(domain.values[-1] for domain in self.domains for _ in range(domain.count))


def decode(raw: Mapping[str, Any]) -> TopologyAssignment:
    """Read ``topologyAssignment``. Raises ValueError, in words, when it makes no sense."""
    levels = tuple(str(level) for level in _list(raw.get("levels")))
    if not levels:
        raise ValueError("topologyAssignment has no levels")
    domains: list[Domain] = []
    pods = 0
    for index, part in enumerate(_list(raw.get("slices"))):
        if not isinstance(part, Mapping):
            raise ValueError(f"topologyAssignment.slices[{index}] is no object")
        for domain in _slice(part, len(levels), f"topologyAssignment.slices[{index}]"):
            pods += domain.count
            if pods > MOST_PODS:
                raise ValueError(f"topologyAssignment has more than {MOST_PODS} pods")
            domains.append(domain)
    return TopologyAssignment(levels, tuple(domains))


def _slice(raw: Mapping[str, Any], levels: int, path: str) -> Sequence[Domain]:
    count = raw.get("domainCount")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MOST_PODS:
        raise ValueError(f"{path}.domainCount is {count!r}, not a number of domains")
    per_level = _list(raw.get("valuesPerLevel"))
    if len(per_level) != levels:
        raise ValueError(f"{path}.valuesPerLevel has {plural(len(per_level), 'element')} for {plural(levels, 'level')}")
    values = [_values(entry, count, f"{path}.valuesPerLevel[{at}]") for at, entry in enumerate(per_level)]
    pods = _pod_counts(raw.get("podCounts"), count, f"{path}.podCounts")
    return [Domain(tuple(column), pods[index]) for index, column in enumerate(zip(*values, strict=True))]


def _values(entry: Any, count: int, path: str) -> Sequence[str]:
    universal, individual = _one_of(entry, path)
    if universal is not None:
        return [str(universal)] * count
    if not isinstance(individual, Mapping):
        raise ValueError(f"{path}.individual is no object")
    roots = _list(individual.get("roots"))
    if len(roots) != count:
        raise ValueError(f"{path}.individual.roots has {plural(len(roots), 'element')} for {plural(count, 'domain')}")
    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in roots]


def _pod_counts(entry: Any, count: int, path: str) -> Sequence[int]:
    universal, individual = _one_of(entry, path)
    counts = [universal] * count if universal is not None else _list(individual)
    if len(counts) != count:
        raise ValueError(f"{path}.individual has {plural(len(counts), 'element')} for {plural(count, 'domain')}")
    if any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in counts):
        raise ValueError(f"{path} has a number of pods that is none")
    return counts


def _one_of(entry: Any, path: str) -> tuple[Any, Any]:
    """``universal``, which is for all domains, and ``individual``, for each of them: one of the two is None."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{path} is no object")
    universal, individual = entry.get("universal"), entry.get("individual")
    if (universal is None) == (individual is None):
        raise ValueError(f"{path} needs one of universal and individual")
    return universal, individual


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
