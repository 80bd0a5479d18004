"""/healthz, /readyz and /metrics, on a plain HTTP port of their own."""

from collections.abc import Callable, Mapping

from aiohttp import web

from lockstep.controller.metrics.exporter import CONTENT_TYPE, Metrics

OVERDUE_SECONDS = 300.0
"""A restart must not be what an outage of the API server ends in: passes that wait for it time out first."""
UNHEARD_SECONDS = 180.0
"""Bookmarks come about once a minute."""


class Health:
    """Whether this process works.

    ``informer_ages``: seconds since each informer had an event, bookmark or relist; infinite before its
    first list. ``oldest_due_age``: seconds that the oldest due key has waited.
    """

    def __init__(
        self,
        *,
        leading: Callable[[], bool],
        oldest_due_age: Callable[[], float],
        informer_ages: Callable[[], Mapping[str, float]],
    ) -> None:
        self._leading = leading
        self._oldest_due_age = oldest_due_age
        self._informer_ages = informer_ages

    def sickness(self) -> str:
        """Why this process should be restarted, or nothing. That it answers at all shows the loop turns."""
        overdue = self._oldest_due_age() if self._leading() else 0.0
        return f"a key is overdue by {overdue:.0f} s" if overdue > OVERDUE_SECONDS else ""

    def unreadiness(self) -> str:
        """Why this process does not see the cluster, or nothing. A standby sees it like the leader."""
        silent = sorted(name for name, age in self._informer_ages().items() if age > UNHEARD_SECONDS)
        return f"not heard from the API server about {', '.join(silent)}" if silent else ""


def application(health: Health, metrics: Metrics) -> web.Application:
    """The three endpoints."""

    async def healthz(_: web.Request) -> web.Response:
        return _verdict(health.sickness())

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(health.unreadiness())

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=await metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", scrape)
    return app


def _verdict(trouble: str) -> web.Response:
    return web.Response(status=503 if trouble else 200, text=f"{trouble or 'ok'}\n")
