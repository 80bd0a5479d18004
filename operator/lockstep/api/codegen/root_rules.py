"""The rules that stand at the root of an object, and first ask whether this is a write of status.

The API server tries every rule at every write, and an operator writes nothing but status: each rule that is tried then
costs it some sixteen microseconds, and each field that is read of a spec as wide as ours ten. A write of status never
changes the spec, and a write of the spec never changes status: the API server sees to both. A status that differs thus
proves that all of the spec is as it was, and was found good. As the question has its price too, the rules are few:
one says all that is wrong, or was changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from lockstep.api.base.fields import ApiField, fields_of
from lockstep.api.base.schema import Changeable, Rule

_WRITES_STATUS = "has(self.status) != has({old}.status) || has(self.status) && self.status != {old}.status"
_HAS_NOT_ENDED = (
    "!(has(self.status) && has(self.status.conditions) && "
    "self.status.conditions.exists(c, c.type == 'Finished' && c.status == 'True'))"
)
_GO_ON = (
    "'the run has ended, and no change of it does anything any more; to go on from its newest checkpoint: "
    "lockstep retry ' + self.metadata.name + ' -f FILE, and for a run of an array --name NAME.'"
)
"""Rules see nothing of an object's metadata but its name, and so not whether an array made it."""
_SELF = re.compile(r"\bself\b")
_REMEDIES = {
    Changeable.NEVER: "never changes after creation; create a new run instead",
    Changeable.WHILE_SUSPENDED: "changes only while the run is suspended; set suspend: true with the change",
}


def root_rules(spec: type[BaseModel]) -> list[Rule]:
    """What holds between fields of `spec`, and which of them may change when, as rules at the root of the object."""
    cross: Sequence[Rule] = getattr(spec, "cross_field_rules", ())
    frozen = list(_change_marks(spec))
    still: Sequence[str] = getattr(spec, "after_the_end", ())
    ended = _ended(spec, still) if still else ""
    return [*([_together(cross)] if cross else []), *([_unchanged(frozen, ended)] if frozen else [])]


def _together(rules: Sequence[Rule]) -> Rule:
    """One for all of `rules`. An object that is new has no status yet."""
    written = [(f"({re.sub(_SELF, 'self.spec', rule.cel)})", f"spec{rule.field}: {rule.message}.") for rule in rules]
    hold = " && ".join(cel for cel, _ in written)
    return Rule(
        cel=f"oldSelf.hasValue() && ({_WRITES_STATUS.format(old='oldSelf.value()')}) || {hold}",
        message="fields do not go together",
        # A list of the words, filtered and joined, would be estimated to cost a hundred times what is allowed.
        message_cel=" + ' ' + ".join(f"({cel} ? '' : {json.dumps(words)})" for cel, words in written),
        field=".spec",
        from_creation=True,
    )


def _ended(spec: type[BaseModel], still: Sequence[str]) -> str:
    """CEL: the object has not ended, or what changes are fields that have a meaning even then, or nothing does."""
    all_of_it = f"{_HAS_NOT_ENDED} || self.spec == oldSelf.spec"
    return " || ".join((all_of_it, *(f"!({field.same})" for field in _named(spec, still))))


def _named(
    spec: type[BaseModel], paths: Sequence[str], above: str = "spec.", maybe: tuple[str, ...] = ()
) -> Iterator[_Frozen]:
    for field in fields_of(spec):
        path = f"{above}{field.name}"
        parts = maybe if _always_stored(field) else (*maybe, path)
        if path.removeprefix("spec.") in paths:
            yield _Frozen(path, parts, field.default)
        elif field.type.model is not None and any(each.startswith(f"{path.removeprefix('spec.')}.") for each in paths):
            yield from _named(field.type.model, paths, f"{path}.", parts)


def _unchanged(frozen: Sequence[tuple[_Frozen, Changeable]], ended: str) -> Rule:
    """One for all fields that may not change at any time, and for an object that has ended."""
    hold = {when: " && ".join(field.same for field, its in frozen if its is when) for when in _REMEDIES}
    hold = {when: cel for when, cel in hold.items() if cel}
    if cel := hold.get(Changeable.WHILE_SUSPENDED):
        hold[Changeable.WHILE_SUSPENDED] = f"(self.spec.suspend || oldSelf.spec.suspend || {cel})"
    words = []
    for when, cel in hold.items():
        changed = " + ".join(f"({field.same} ? '' : ' {field.path}')" for field, its in frozen if its is when)
        words.append(f"({cel} ? '' : '{_REMEDIES[when]}:' + {changed} + '.')")
    holds, message = " && ".join(hold.values()), " + ' ' + ".join(words)
    if ended:
        holds, message = f"({ended}) && {holds}", f"!({ended}) ? {_GO_ON} : {message}"
    return Rule(
        cel=f"{_WRITES_STATUS.format(old='oldSelf')} || {holds}",
        message="may not change, or only while the run is suspended",
        message_cel=message,
        field=".spec",
    )


@dataclass(frozen=True)
class _Frozen:
    """A field that may not change at any time: its path, the parts of that which may be absent, and its default."""

    path: str
    maybe: tuple[str, ...]
    default: Any

    @property
    def same(self) -> str:
        """CEL: equal before and after, or absent both times. Optional types would be estimated to cost too much."""
        equal = f"self.{self.path} == oldSelf.{self.path}"
        if not self.maybe:
            return equal
        new, old = (" && ".join(f"has({side}.{part})" for part in self.maybe) for side in ("self", "oldSelf"))
        if self.default is None:
            return f"(({new}) ? ({old}) && {equal} : !({old}))"
        left_out = json.dumps(self.default)
        return f"(({new} ? self.{self.path} : {left_out}) == ({old} ? oldSelf.{self.path} : {left_out}))"


def _change_marks(
    model: type[BaseModel], above: str = "spec.", maybe: tuple[str, ...] = (), inherited: Changeable | None = None
) -> Iterator[tuple[_Frozen, Changeable]]:
    """Yield each field that may not change at any time, and when it may.

    Of a group that stands for its defaults where it is left out these are the fields in it.
    """
    for field in fields_of(model):
        path = f"{above}{field.name}"
        when = field.type.one(Changeable) or inherited
        if when is Changeable.ALWAYS:
            continue
        parts = maybe if _always_stored(field) else (*maybe, path)
        group = field.type.model
        if group is not None and (when is None or field.default is not None):
            yield from _change_marks(group, f"{path}.", parts, when)
        elif when is not None:
            yield _Frozen(path, parts, field.default), when


def _always_stored(field: ApiField) -> bool:
    return field.required or (field.default is not None and field.type.model is None)
