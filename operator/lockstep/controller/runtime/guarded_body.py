"""The body of a write that is asked, at the last moment, whether it may still go."""

from collections.abc import Callable
from typing import Any

import aiohttp


class GuardedBody(aiohttp.BytesPayload):
    """Bytes that go to the connection only if ``guard`` raises nothing right then.

    Between the decision to send and the sending there may be seconds: a connection has to come free or to be made,
    or the process was stopped. Without its body a request is no write.
    """

    def __init__(self, content: bytes, content_type: str, guard: Callable[[], None]) -> None:
        super().__init__(content, content_type=content_type)
        self._guard = guard
        self.forbidden: Exception | None = None
        """What the guard raised, if it did. The client itself tells only of a broken connection."""

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        """Called by the client once it has a connection and before anything was sent on it."""
        try:
            self._guard()
        except Exception as error:
            self.forbidden = error
            raise
        await super().write_with_length(writer, content_length)
