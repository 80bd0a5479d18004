"""What users get wrong in a run, and the words they get back: each names the field and says what to write instead."""

from __future__ import annotations

import pytest

from localcluster.cluster import LocalCluster
from support.bad_specs import BAD_SPECS
from support.good_specs import refusal, run, runs, spec

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]


@pytest.mark.parametrize("mistake", BAD_SPECS)
def test_a_bad_spec_is_refused_with_field_and_remedy(cluster: LocalCluster, mistake: str) -> None:
    bad, field, remedy = BAD_SPECS[mistake]
    words = refusal(cluster, "POST", runs("default"), run(bad, "default"))
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("name", ["a" * 41, "has.dots"])
def test_a_name_that_pods_cannot_carry_is_refused(cluster: LocalCluster, name: str) -> None:
    words = refusal(cluster, "POST", runs("default"), run(spec(), "default", name))
    assert "metadata.name must be at most 40 lower case letters, digits and '-'" in words
    assert "write '-' in place of dots" in words
