"""How a value of the API is changed: values are frozen, and a change is a new value."""

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

__all__ = ["changed"]

if TYPE_CHECKING:
    # mypy knows the fields of every model by this name alone: a misspelled field, or a value of another type, is an
    # error. `model_copy(update={...})` takes anything.
    from dataclasses import replace as changed
else:

    def changed(model: M, /, **changes: object) -> M:
        """The same with some fields changed. Nothing is validated. Raises TypeError for what is not a field.

        What `model.model_copy(update=changes)` gives, and faster: the operator does this 10,000 times in a pass.
        """
        new = model.__copy__()
        values = new.__dict__
        count = len(values)
        values.update(changes)
        if len(values) != count:
            unknown = ", ".join(sorted(changes.keys() - type(model).model_fields.keys()))
            raise TypeError(f"{type(model).__name__} has no field {unknown}")
        new.__pydantic_fields_set__.update(changes)
        return new
