"""What every model of the API is made of: base classes and the marks that only the CRD needs.

Types, bounds and defaults are plain pydantic. The marks below, put into `Annotated[...]`, say what pydantic
has no word for; `crdgen` turns both into the CRD's schema.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from lockstep.api.base import durations, nesting, quantities, times


@dataclass(frozen=True)
class Rule:
    """A CEL rule of the CRD. `message` names the remedy; `field` is the path below where the rule stands.

    `message_cel` is CEL for a better message, where the words depend on the object. A rule on `oldSelf` is tried where
    there is an older object; one `from_creation` always is, and has it as an optional."""

    cel: str
    message: str
    field: str = ""
    message_cel: str = ""
    from_creation: bool = False


@dataclass(frozen=True)
class MapList:
    """A list whose items are named by `key`: merged item by item, no name twice."""

    key: str = "name"


@dataclass(frozen=True)
class SetList:
    """A list of distinct scalars."""


@dataclass(frozen=True)
class IntOrString:
    """An integer or a string, as Kubernetes writes quantities and percentages."""


@dataclass(frozen=True)
class DateTime:
    """A moment, RFC 3339 on the wire."""


@dataclass(frozen=True)
class Opaque:
    """An object that is kept as written; the API server does not look inside."""


class Changeable(enum.Enum):
    """When a field of a run's spec may change. A field without this mark may always change."""

    WHILE_SUSPENDED = "only while `suspend` is true"
    NEVER = "never"
    ALWAYS = "at any time, with all that is in it"


class ApiModel(BaseModel):
    """snake_case here, camelCase on the wire. Values are frozen: `changed` makes another one."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        use_attribute_docstrings=True,
    )
    cross_field_rules: ClassVar[tuple[Rule, ...]] = ()


class SpecModel(ApiModel):
    """What a user writes. Unknown fields are refused: a field that does nothing must not look accepted."""

    model_config = ConfigDict(extra="forbid")

    def dump(self) -> dict[str, Any]:
        """Return the JSON form, with the defaults written out."""
        return self.model_dump(mode="json", exclude_none=True)

    def dump_written(self) -> dict[str, Any]:
        """Return the JSON form of what was set when it was made."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)


class StatusModel(ApiModel):
    """What the operator writes. Unknown fields are ignored: an older operator reads a newer status."""

    model_config = ConfigDict(extra="ignore")

    def dump(self) -> dict[str, Any]:
        """Return the JSON form; what equals its default is left out, so that status stays small."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)

    def dump_only(self, fields: set[str]) -> dict[str, Any]:
        """Return what `dump` does, of these fields."""
        return self.model_dump(mode="json", include=fields, exclude_defaults=True, exclude_none=True)

    @classmethod
    def load(cls, raw: dict[str, Any] | None) -> Self:
        """Read what `dump` wrote; nothing at all reads as the empty status."""
        return cls.model_validate(raw or {})


_MAPS_OF_TEXT = frozenset({"labels", "annotations", "matchLabels", "nodeSelector"})


def _as_written(value: Any) -> Any:
    if nesting.is_too_deep(value):
        raise ValueError(nesting.TOO_DEEP)
    return _without_nulls(value)


def _without_nulls(value: Any, field: str = "") -> Any:
    """As the API server reads a null, which templating tools leave behind for empty values: a field that is not set,
    an empty item of a list, the empty text in a map of texts."""
    if isinstance(value, dict):
        if field in _MAPS_OF_TEXT:
            return {key: "" if item is None else item for key, item in value.items()}
        return {key: _without_nulls(item, key) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [{} if item is None else _without_nulls(item) for item in value]
    return value


AsWritten = Annotated[dict[str, Any], BeforeValidator(_as_written), Opaque()]
"""An object of Kubernetes that is handed on, and only looked into. It has no nulls."""


def _checked_quantity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r} is not a quantity: {quantities.QUANTITY_REMEDY}")
    if quantities.parse_quantity(value) < 0:
        raise ValueError(f"{value!r} is negative: {quantities.QUANTITY_REMEDY}")
    return str(value)


Size = Annotated[
    str,
    Field(max_length=32),
    Rule(f"self.matches(r'{quantities.SIZE_PATTERN}')", "write a size as 512Mi, 200Gi or 2Ti"),
    AfterValidator(_checked_quantity),
]
"""An amount of bytes, always with its unit."""

Quantity = Annotated[
    str,
    IntOrString(),
    Rule("type(self) == int ? self >= 0 : isQuantity(self) && !self.startsWith('-')", quantities.QUANTITY_REMEDY),
    BeforeValidator(_checked_quantity),
]
"""An amount of any resource; a number in YAML reads as the string of it."""


def _checked_duration(value: str) -> str:
    durations.parse_duration(value)
    return value


def _checked_tunable(value: str) -> str:
    return value if value in ("Adaptive", "Disabled") else _checked_duration(value)


Duration = Annotated[
    str,
    Field(min_length=durations.DURATION_MIN_LENGTH, max_length=durations.DURATION_MAX_LENGTH),
    Rule(f"self.matches('{durations.DURATION_PATTERN}')", durations.DURATION_REMEDY),
    AfterValidator(_checked_duration),
]
"""A length of time as people write it."""

TunableDuration = Annotated[
    str,
    Field(min_length=durations.DURATION_MIN_LENGTH, max_length=durations.DURATION_MAX_LENGTH),
    Rule(
        f"self in ['Adaptive', 'Disabled'] || self.matches('{durations.DURATION_PATTERN}')",
        "write Adaptive, Disabled or a duration as 90s, 30m, 48h or 2d",
    ),
    AfterValidator(_checked_tunable),
]
"""Adaptive, Disabled, or a length of time."""

Timestamp = Annotated[
    float,
    DateTime(),
    BeforeValidator(times.to_unix),
    PlainSerializer(times.to_rfc3339, return_type=str, when_used="json"),
]
"""A moment: unix seconds in Python, RFC 3339 in JSON. Whole seconds: what is read equals what was written."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
"""The name of another Kubernetes object."""
