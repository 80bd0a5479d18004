"""Tokens of a real API server for longer than they live: `make test-outages` alone, as the shortest live ten minutes.

The same for hours, on a clock that is moved by hand: tests/unit/controller/test_token_soak.py.
"""

from __future__ import annotations

import os
import time

import pytest

from harness.site import Site
from localcluster import simworkers

SECONDS = float(os.environ.get("LOCKSTEP_TEST_TOKEN_SOAK", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not SECONDS, reason="takes minutes: LOCKSTEP_TEST_TOKEN_SOAK=1300, or make test-outages"),
]
LIFETIME = 600
RENEWED_AFTER = 0.8 * LIFETIME
RANKS = 6


def reviews(site: Site) -> float:
    return sum(site.operator.metrics().get("lockstep_token_reviews_total", {}).values())


def refusals(site: Site) -> dict[str, float]:
    """Answers other than 200 and 409 (register first), by code."""
    found: dict[str, float] = {}
    for labels, count in site.operator.metrics().get("lockstep_worker_api_requests_total", {}).items():
        code = dict(labels)["code"]
        if count and code not in ("200", "409"):
            found[code] = found.get(code, 0) + count
    return found


def test_a_gang_is_heard_all_the_time_while_its_tokens_expire_and_are_renewed(
    site: Site, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simworkers, "TOKEN_SECONDS", LIFETIME)
    before = refusals(site)
    run = site.apply(namespace, "llama", nodes=RANKS)
    run.wait_until_running(1)
    reviewed, begun = reviews(site), time.monotonic()
    while time.monotonic() < begun + SECONDS:
        time.sleep(5.0)
        assert site.workers.running(run.uid, 1) == RANKS
        assert refusals(site) == before
    renewals = int(SECONDS / RENEWED_AFTER)
    assert reviews(site) >= reviewed + RANKS * renewals
    assert run.status["attempt"] == 1
    run.delete()
