"""kopf without a memory: nothing of it on anybody's object, and no copy of each object made to see what has changed.

Both are for its handlers of changes, which are not used. Without them an event costs half as much.
"""

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Every object is to kopf as the one before it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing is compared."""
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Nothing was kept."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


class NoProgress(kopf.ProgressStorage):
    """No handler of kopf's takes more than one event."""

    def fetch(self, **_: Any) -> None:
        """Nothing is under way."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""

    def purge(self, **_: Any) -> None:
        """Nothing is there."""

    def touch(self, **_: Any) -> None:
        """Nobody waits to be called again."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """There is nothing of ours in it."""
        return essence
