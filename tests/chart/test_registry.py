"""Every image comes from the registry that somebody without the internet names, as docs/air-gapped.md says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.shown_commands import block_on
from support.helm import ROOT, VALUES, Helm, only

DIGEST = f"sha256:{7:064}"
IMAGE = f"registry.internal/ml/lockstep-operator@{DIGEST}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The values of the page."""
    file = tmp_path / "site.yaml"
    file.write_text(block_on(ROOT / "docs" / "air-gapped.md", "yaml", "digest:").replace("sha256:…", DIGEST))
    return file


def told(found: Any, field: str) -> Iterator[Any]:
    """Every value of a field, however deep, also in YAML that is the text of a ConfigMap."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name == field:
                yield value
            yield from told(yaml.safe_load(value) if name == "operator.yaml" else value, field)
    elif isinstance(found, list):
        for each in found:
            yield from told(each, field)


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_operator_test_and_archive_jobs_take_their_image_from_the_registry_that_is_named(
    helm: Helm, site: Path, values: Path
) -> None:
    objects = helm.objects("--values", values, "--values", site)
    assert list(told(objects, "image")) == [IMAGE] * 3
    for pod in (only(objects, "Deployment")["spec"]["template"], only(objects, "Pod")):
        assert list(told(pod, "image")) == [IMAGE]
        assert list(told(pod, "imagePullSecrets")) == [[{"name": "registry"}]]
    assert list(told(only(objects, "ConfigMap"), "imagePullSecrets")) == [["registry"]]


def test_the_chart_has_no_dependencies_to_fetch() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "lockstep" / "Chart.yaml").read_text())
    assert "dependencies" not in chart
