"""When a run is to start, as the flags of `lockstep submit` say it; they may be given beside a manifest too."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.cli import arrays, slurm_words
from lockstep.cli.client import Json


@dataclass(frozen=True, slots=True)
class Schedule:
    """What decides on the order and the start of a run. None and empty: as the manifest says."""

    time: str | None = None
    time_min: str | None = None
    priority_class: str | None = None
    nice: int | None = None
    begin: str | None = None
    deadline: str | None = None
    dependency: str | None = None
    hold: bool = False

    def fields(self, now: float) -> Json:
        """Fields of the spec. Raises UsageError on what means nothing."""
        found: Json = {}
        for flag, field, words in (
            ("--time", "timeLimit", self.time),
            ("--time-min", "minTimeLimit", self.time_min),
        ):
            if words:
                found[field] = slurm_words.time_limit(flag, words)
        if self.priority_class:
            found["priorityClassName"] = self.priority_class
        if self.nice is not None:
            found["nice"] = self.nice
        for flag, field, words in (("--begin", "notBefore", self.begin), ("--deadline", "deadline", self.deadline)):
            if words:
                found[field] = slurm_words.moment(flag, words, now)
        if self.dependency:
            found |= slurm_words.dependencies(self.dependency)
        if self.hold:
            found["suspend"] = True
        return found

    def put_into(self, manifest: Json, now: float) -> None:
        """Have ``manifest`` say so. One whose spec is none is left for others to refuse."""
        fields, spec = self.fields(now), manifest.get("spec") or {}
        if arrays.is_set(manifest):
            arrays.put_schedule(manifest, fields)
        elif fields and isinstance(spec, dict):
            manifest["spec"] = spec | fields
