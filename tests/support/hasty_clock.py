"""The machine's clock for tests of what waits for real time and real sockets both."""

from lockstep.controller.runtime.clock import SystemClock

TIMES = 20


class HastyClock(SystemClock):
    """Pauses between tries take a twentieth of their time; what is waited for has all of it."""

    async def sleep(self, seconds: float) -> None:
        """Return after a twentieth of ``seconds``."""
        await super().sleep(seconds / TIMES)
