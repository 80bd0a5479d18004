"""Traces: what becomes a span, where spans go, and that nothing is traced unless it is asked for."""

from __future__ import annotations

import builtins
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import ValidationError

from lockstep.config import ConfigError, TracingConfig
from lockstep.controller.runtime.tracing import NoTracer, Tracer, tracer_for
from support.collector import Collector

ASKED = TracingConfig(endpoint="http://127.0.0.1:9")


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def spans(tracer: Tracer, kept: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    tracer.close()
    return {span.name: span for span in kept.get_finished_spans()}


def test_what_goes_on_inside_is_below_and_carries_what_it_is_about(kept: InMemorySpanExporter) -> None:
    tracer = tracer_for(ASKED, "op-1", lambda: kept)
    with tracer.span("reconcile cluster", key="cluster"), tracer.span("admission pass", runs=3):
        pass
    found = spans(tracer, kept)
    outer, inner = found["reconcile cluster"], found["admission pass"]
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert dict(outer.attributes or {}) == {"lockstep.key": "cluster"}
    assert dict(inner.attributes or {}) == {"lockstep.runs": 3}
    assert outer.resource.attributes["service.instance.id"] == "op-1"


def test_a_look_that_fails_is_marked_and_fails_all_the_same(kept: InMemorySpanExporter) -> None:
    tracer = tracer_for(ASKED, "op-1", lambda: kept)
    with pytest.raises(RuntimeError), tracer.span("reconcile run"):
        raise RuntimeError("no answer")
    (span,) = spans(tracer, kept).values()
    assert not span.status.is_ok
    assert [event.name for event in span.events] == ["exception"]


def test_a_recovery_that_is_over_has_its_phases_below_it(kept: InMemorySpanExporter) -> None:
    tracer = tracer_for(ASKED, "op-1", lambda: kept)
    tracer.past("recovery", {"run": "team/llama"}, [("decide", 100.0, 100.5), ("stop", 100.5, 103.0)])
    found = spans(tracer, kept)
    times = {name: ((span.start_time or 0) / 1e9, (span.end_time or 0) / 1e9) for name, span in found.items()}
    assert times == {"recovery": (100.0, 103.0), "decide": (100.0, 100.5), "stop": (100.5, 103.0)}
    for phase in ("decide", "stop"):
        assert found[phase].parent == found["recovery"].context


def test_a_share_of_nothing_keeps_nothing(kept: InMemorySpanExporter) -> None:
    tracer = tracer_for(TracingConfig(endpoint="http://127.0.0.1:9", share=0), "op-1", lambda: kept)
    with tracer.span("reconcile run"):
        pass
    assert spans(tracer, kept) == {}


def test_without_an_endpoint_nothing_is_traced_and_opentelemetry_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing(monkeypatch)
    tracer = tracer_for(TracingConfig(), "op-1")
    assert isinstance(tracer, NoTracer)
    with tracer.span("reconcile run", key="run/team/llama"):
        tracer.past("recovery", {}, [("decide", 1.0, 2.0)])
    tracer.close()


def test_an_endpoint_without_opentelemetry_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    with pytest.raises(ConfigError, match=r"tracing\.endpoint: .*install the extra otel"):
        tracer_for(ASKED, "op-1")


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "lockstep.controller.runtime.otel":
            raise ModuleNotFoundError("No module named 'opentelemetry'")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ValidationError, match="endpoint"):
        TracingConfig(endpoint="collector:4318")


@pytest.mark.slow
def test_spans_reach_a_collector_when_the_operator_ends() -> None:
    with Collector.started() as collector:
        tracer = tracer_for(TracingConfig(endpoint=collector.url), "op-1")
        with tracer.span("reconcile run", key="run/team/llama"):
            pass
        tracer.close()
        assert collector.names() == {"reconcile run"}


@pytest.mark.process
def test_a_collector_that_is_away_holds_nobody_up_for_long() -> None:
    with Collector.started() as collector:
        gone = collector.url
    tracer = tracer_for(TracingConfig(endpoint=gone), "op-1")
    with tracer.span("reconcile run"):
        pass
    begun = time.monotonic()
    tracer.close()
    assert time.monotonic() - begun < 30
