"""What many tests begin with is made once, and each of them gets a copy."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from support.world_state import Worker, WorldState

W = TypeVar("W", bound=WorldState)
P = ParamSpec("P")


def made_once(make: Callable[P, W]) -> Callable[P, W]:
    """``make`` for tests that go on with what it makes, each with one of its own: it takes a hundred times as long as
    a copy. What is patched meanwhile would be in all of them."""
    made: dict[str, W] = {}

    @wraps(make)
    def copied(*args: P.args, **kwargs: P.kwargs) -> W:
        asked = repr((args, kwargs))
        if asked not in made:
            made[asked] = make(*args, **kwargs)
        return copy_of(made[asked])

    return copied


def copy_of(world: W) -> W:
    """Changes of either are not seen in the other."""
    return replace(world, **{field.name: _copied(getattr(world, field.name)) for field in fields(world)})


def _copied(value: Any) -> Any:
    """What is neither of these cannot be changed."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list | set):
        return type(value)(value)
    return replace(value) if isinstance(value, Worker) else value
