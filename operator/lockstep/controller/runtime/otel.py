"""Spans as OpenTelemetry has them. Only ``tracing`` imports this, and only where it is wanted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import set_span_in_context

from lockstep.controller.runtime.tracing import Attributes, Phase


def otlp_exporter(endpoint: str, seconds: float) -> SpanExporter:
    """Sends to the collector at ``endpoint``; gives up on a batch after ``seconds``."""
    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=seconds)


class OtelTracer:
    """A Tracer. ``share`` of all traces is kept."""

    def __init__(self, exporter: SpanExporter, resource: Mapping[str, str], share: float) -> None:
        sampler = ParentBased(TraceIdRatioBased(share))
        self._provider = TracerProvider(resource=Resource(dict(resource)), sampler=sampler, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("lockstep")

    @contextmanager
    def span(self, name: str, **attributes: str | int | float) -> Iterator[None]:
        """See ``Tracer``."""
        with self._tracer.start_as_current_span(name, attributes=_named(attributes)):
            yield

    def past(self, name: str, attributes: Attributes, phases: Sequence[Phase]) -> None:
        """See ``Tracer``."""
        begun, ended = phases[0][1], phases[-1][2]
        whole = self._tracer.start_span(name, attributes=_named(attributes), start_time=_nanoseconds(begun))
        for phase, since, until in phases:
            part = self._tracer.start_span(phase, set_span_in_context(whole), start_time=_nanoseconds(since))
            part.end(_nanoseconds(until))
        whole.end(_nanoseconds(ended))

    def close(self) -> None:
        """See ``Tracer``."""
        self._provider.shutdown()


def _named(attributes: Attributes) -> Attributes:
    return {f"lockstep.{name}": value for name, value in attributes.items()}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
