"""Every field that takes a duration or a size says so to whoever writes something else, whichever field it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from harness.kube import ROOT
from localcluster.api import Request
from localcluster.cluster import LocalCluster
from localcluster.errors import ApiError

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

REMEDIES = {
    "self.matches('^([0-9]+d)": "write a duration as 90s",
    "self in ['Adaptive', 'Disabled'] || self.matches('^([0-9]+d)": "write Adaptive, Disabled or a duration as 90s",
    "self.matches(r'^[0-9]+(\\.[0-9]+)?(k|M": "write a size as",
}
"""By how the rule of the field begins."""
GOOD: dict[str, dict[str, Any]] = {
    "TrainingRun": {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"]},
    "TrainingQueue": {},
}
BESIDE: dict[str, dict[str, Any]] = {
    "checkpoint": {"shared": {"claimName": "lustre"}},
    "checkpoint.archive": {"uri": "s3://golden/llama"},
    "checkpoint.archive.retention": {"keepLast": 3},
    "checkpoint.retention": {"keepLast": 3},
    "elastic": {"min": 1},
    "volumes.items": {"name": "scratch", "mountPath": "/scratch"},
    "batch.volumes.items": {"name": "scratch", "mountPath": "/scratch"},
}
"""What an object needs beside the field."""


def fields(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """(where it is, remedy) of every duration and size below ``schema``."""
    for validation in schema.get("x-kubernetes-validations", ()):
        for beginning, remedy in REMEDIES.items():
            if validation["rule"].startswith(beginning):
                yield path, remedy
    for name, below in schema.get("properties", {}).items():
        yield from fields(below, (*path, name))
    if "items" in schema:
        yield from fields(schema["items"], (*path, "items"))


def found() -> Iterator[tuple[str, str, str]]:
    """(kind, field of its spec, remedy)."""
    for kind in GOOD:
        manifest = (ROOT / "crds" / f"lockstep.dev_{kind.lower()}s.yaml").read_text(encoding="utf-8")
        schema = yaml.safe_load(manifest)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for path, remedy in fields(schema["properties"]["spec"]):
            yield kind, ".".join(path), remedy


def spec_with(kind: str, field: str, value: str) -> dict[str, Any]:
    """A good spec but for ``field``."""

    def below(names: list[str], before: tuple[str, ...]) -> Any:
        if not names:
            return value
        if names[0] == "items":
            return [below(names[1:], (*before, "items"))]
        return {**BESIDE.get(".".join(before), {}), names[0]: below(names[1:], (*before, names[0]))}

    return GOOD[kind] | below(field.split("."), ())


@pytest.mark.parametrize(("kind", "field", "remedy"), [*found()])
def test_what_is_no_amount_is_refused_with_field_and_remedy(
    cluster: LocalCluster, kind: str, field: str, remedy: str
) -> None:
    body = {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "bad"},
        "spec": spec_with(kind, field, "soon"),
    }
    place = "namespaces/default/trainingruns" if kind == "TrainingRun" else "trainingqueues"
    with pytest.raises(ApiError) as refused:
        cluster.api.send(
            Request("POST", f"/apis/lockstep.dev/v1alpha1/{place}?fieldValidation=Strict&dryRun=All", body)
        )
    words = str(refused.value)
    assert f"spec.{field}".replace(".items", "[0]") in words
    assert remedy in words


def test_the_fields_are_found() -> None:
    assert len([*found()]) > 20
