"""What the chart grants, against what the operator was seen to need on real API servers (tests/cluster/rights.yaml)."""

from __future__ import annotations

from pathlib import Path

from support.helm import Helm
from support.rights import granted, recorded

CLUSTER_TESTS = Path(__file__).parents[1] / "cluster"


def test_every_right_is_granted_that_is_needed_and_no_other(helm: Helm) -> None:
    rights, needed = granted(helm.objects()), set(recorded())
    assert rights - needed == set(), "granted, and needed by nobody"
    assert needed - rights == set(), "needed, and not granted"


def test_every_right_is_needed_by_a_test_or_by_a_reason_in_words() -> None:
    modules = {path.stem for path in CLUSTER_TESTS.glob("test_*.py")}
    for right, by in recorded().items():
        assert by in modules or " " in by, right
