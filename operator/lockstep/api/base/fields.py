"""The models read as data: one `ApiField` per field, with its bare type and what was written beside it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lockstep.api.base.schema import ApiModel

Mark = TypeVar("Mark")


@dataclass(frozen=True)
class ApiType:
    """A type without its wrappers: `bare` may be a scalar, a Literal, a tuple, a dict, a union or a model."""

    bare: Any
    marks: tuple[Any, ...]

    def all(self, kind: type[Mark]) -> list[Mark]:
        """Every mark of one kind, in the order written."""
        return [mark for mark in self.marks if isinstance(mark, kind)]

    def one(self, kind: type[Mark]) -> Mark | None:
        """The mark of a kind of which there is at most one."""
        found = self.all(kind)
        return found[0] if found else None

    @property
    def model(self) -> type[ApiModel] | None:
        """The model, when the type is one."""
        return self.bare if isinstance(self.bare, type) and issubclass(self.bare, ApiModel) else None

    @property
    def item(self) -> ApiType | None:
        """What a list or a map holds."""
        if get_origin(self.bare) is tuple:
            return unwrapped(get_args(self.bare)[0])
        if get_origin(self.bare) is dict:
            return unwrapped(get_args(self.bare)[1])
        return None

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of an enumeration."""
        return get_args(self.bare) if get_origin(self.bare) is Literal else ()


@dataclass(frozen=True)
class ApiField:
    """One field as the API shows it."""

    name: str
    type: ApiType
    required: bool
    default: Any
    description: str


def unwrapped(annotation: Any, marks: tuple[Any, ...] = ()) -> ApiType:
    """Take `Annotated` and `| None` off a type, and keep what they said."""
    if get_origin(annotation) is Annotated:
        bare, *said = get_args(annotation)
        return unwrapped(bare, (*_flat(said), *marks))
    if get_origin(annotation) in (Union, types.UnionType):
        present = [arm for arm in get_args(annotation) if arm is not type(None)]
        if len(present) == 1:
            return unwrapped(present[0], marks)
    return ApiType(annotation, marks)


def fields_of(model: type[BaseModel]) -> Iterator[ApiField]:
    """Yield the fields of `model` in the order written."""
    for name, info in model.model_fields.items():
        yield ApiField(
            name=info.alias or name,
            type=unwrapped(info.annotation, tuple(info.metadata)),
            required=info.is_required(),
            default=None if info.is_required() else _plain(info.get_default(call_default_factory=True)),
            description=" ".join((info.description or "").split()),
        )


def _flat(said: list[Any]) -> Iterator[Any]:
    for mark in said:
        if isinstance(mark, FieldInfo):
            yield from mark.metadata
        else:
            yield mark


def _plain(default: Any) -> Any:
    """A default as JSON; None when there is nothing to write down."""
    if isinstance(default, ApiModel):
        default = default.model_dump(mode="json", exclude_none=True)
    if isinstance(default, dict):
        default = {key: kept for key, value in default.items() if (kept := _plain(value)) is not None}
    return None if default in ((), [], {}) else default
