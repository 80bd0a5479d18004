"""Traces by OpenTelemetry, for who wants to see one reconcile of one run among everything else: off unless configured.

The extra ``otel`` brings OpenTelemetry; nothing else imports it. Spans are sent from a thread of its own, in batches,
and dropped when the collector does not keep up: nothing waits for them.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from lockstep import __version__
from lockstep.config import ConfigError, TracingConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

Attributes = dict[str, str | int | float]
Phase = tuple[str, float, float]
"""Name, beginning and end in Unix seconds."""
_SEND_SECONDS = 5.0
"""For one batch, and so for the end of the process."""


class Tracer(Protocol):
    """Where spans go."""

    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[None]:
        """What goes on inside of it is one span, below the one that it is in; an exception that leaves it is noted."""
        ...

    def past(self, name: str, attributes: Attributes, phases: Sequence[Phase]) -> None:
        """Something that is over, and the phases that it had, one after the other."""
        ...

    def close(self) -> None:
        """Send what is left. Takes seconds when nobody answers."""
        ...


class NoTracer:
    """Traces nothing."""

    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def past(self, name: str, attributes: Attributes, phases: Sequence[Phase]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def tracer_for(config: TracingConfig, instance: str, exporter: "Callable[[], SpanExporter] | None" = None) -> Tracer:
    """The tracer that ``config`` asks for. ``exporter``: instead of one that sends to its endpoint.

    Raises ConfigError when OpenTelemetry is not installed.
    """
    if not config.endpoint:
        return NoTracer()
    try:
        from lockstep.controller.runtime.otel import OtelTracer, otlp_exporter
    except ImportError as error:
        raise ConfigError(
            f"tracing.endpoint: OpenTelemetry is not here ({error}); install the extra otel, or leave it out"
        ) from error
    made = exporter() if exporter is not None else otlp_exporter(config.endpoint, _SEND_SECONDS)
    resource = {"service.name": "lockstep-operator", "service.version": __version__, "service.instance.id": instance}
    return OtelTracer(made, resource, config.share)
