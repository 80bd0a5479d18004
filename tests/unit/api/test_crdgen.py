from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from lockstep.api.base.schema import Rule, SpecModel
from lockstep.api.codegen.crdgen import MAX_JSON_BYTES, custom_resource_definition, generated_files, main
from lockstep.api.codegen.openapi import structural_schema
from lockstep.api.codegen.root_rules import root_rules
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.v1alpha1 import KINDS, TrainingRun

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.crd.kind)
def crd(request: pytest.FixtureRequest) -> dict[str, Any]:
    return custom_resource_definition(request.param)


def version(crd: dict[str, Any]) -> dict[str, Any]:
    [only] = crd["spec"]["versions"]
    return only


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below and including this one, with its path."""
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from schemas(below, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from schemas(schema[word], f"{path}[]")


@pytest.mark.slow
def test_the_committed_files_are_those_the_models_generate() -> None:
    assert main(["--check", str(ROOT)]) == 0


@pytest.mark.slow
def test_generating_twice_gives_the_same_bytes() -> None:
    assert generated_files() == generated_files()


@pytest.mark.slow
def test_a_stale_file_is_named_and_left_alone_by_a_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    stale = tmp_path / "docs/api.md"
    stale.write_text("edited")
    assert main(["--check", str(tmp_path)]) == 1
    assert "docs/api.md is stale: run `make generate`" in capsys.readouterr().out
    assert stale.read_text() == "edited"


def test_a_plain_kubectl_apply_can_carry_the_crd(crd: dict[str, Any]) -> None:
    assert len(json.dumps(crd)) < MAX_JSON_BYTES


def test_every_field_is_described(crd: dict[str, Any]) -> None:
    root = version(crd)["schema"]["openAPIV3Schema"]
    bare = [
        path
        for part in ("spec", "status")
        for path, schema in schemas(root["properties"][part], part)
        if not path.endswith("[]") and not schema.get("description")
    ]
    assert bare == []


def test_every_list_says_how_it_merges_and_everything_a_user_writes_is_bounded(crd: dict[str, Any]) -> None:
    root = version(crd)["schema"]["openAPIV3Schema"]
    for path, schema in schemas(root["properties"]["spec"], "spec"):
        if schema.get("type") == "array":
            assert "x-kubernetes-list-type" in schema, path
            assert "maxItems" in schema, path
        if schema.get("type") == "string" and "enum" not in schema:
            assert "maxLength" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


def test_the_schema_uses_only_what_a_structural_schema_may_hold(crd: dict[str, Any]) -> None:
    foreign = {"$ref", "$defs", "anyOf", "allOf", "oneOf", "nullable", "const", "title"}
    for path, schema in schemas(version(crd)["schema"]["openAPIV3Schema"]):
        assert not foreign & schema.keys(), path
        assert schema.get("type") in {None, "object", "array", "string", "integer", "boolean"}, path
        assert not {"properties", "additionalProperties"} <= schema.keys(), path


def test_every_default_is_one_that_its_own_model_would_write() -> None:
    spec = version(custom_resource_definition(TrainingRun))["schema"]["openAPIV3Schema"]["properties"]["spec"]
    defaults = {
        path.removeprefix("spec."): schema["default"] for path, schema in schemas(spec, "spec") if "default" in schema
    }
    assert defaults == {
        "queue": "default",
        "volumes[].readOnly": False,
        "launcher.type": "Plain",
        "launcher.ray.onNodeLoss": "Join",
        "launcher.steps": False,
        "launcher.batch.name": "",
        "launcher.batch.host": "",
        "launcher.batch.user": "",
        "launcher.batch.uid": 0,
        "launcher.batch.gid": 0,
        "launcher.batch.append": False,
        "placement.topology[].policy": "Pack",
        "placement.topology[].mode": "Preferred",
        "checkpoint.format": "Auto",
        "checkpoint.local.keepLast": 2,
        "checkpoint.archive.interval": "6h",
        "checkpoint.cadence.interval": "Adaptive",
        "checkpoint.cadence.min": "1m",
        "checkpoint.cadence.max": "2h",
        "checkpoint.gracePeriod": "5m",
        "checkpoint.layout": "PerAttempt",
        "checkpoint.trustTimes": True,
        "checkpoint.start.mode": "Auto",
        "checkpoint.start.acceptCopy": False,
        "elastic.multipleOf": 1,
        "elastic.growAfter": "30m",
        "spareNodes": 0,
        "recovery.noProgressLimit": "Adaptive",
        "recovery.hangTimeout": "Adaptive",
        "recovery.onCordon": "Ignore",
        "recovery.onNaN": "RollBack",
        "recovery.onLossSpike": "Report",
        "recovery.onStraggler": "Report",
        "preflight.warmUp": "Disabled",
        "onTimeLimit.action": "Fail",
        "onTimeLimit.leadTime": "10m",
        "budget.action": "Warn",
        "worker": "Enabled",
        "dependsOn[].condition": "Succeeded",
        "onUnsatisfiable": "Hold",
        "nice": 0,
        "suspend": False,
        "cancel": False,
        "network": "Host",
    }


def test_a_type_that_has_no_place_in_a_crd_is_refused() -> None:
    class Loss(BaseModel):
        value: float

    with pytest.raises(TypeError, match="no place in a CRD"):
        structural_schema(Loss)


def test_a_pattern_reaches_the_schema_unless_a_rule_says_it_in_words() -> None:
    class Named(SpecModel):
        plain: Annotated[str, Field(max_length=9, pattern="^[a-z]+$")]
        worded: Annotated[
            str, Field(max_length=9, pattern="^[a-z]+$"), Rule("self.matches('^[a-z]+$')", "write small letters")
        ]

    properties = structural_schema(Named)["properties"]
    assert properties["plain"]["pattern"] == "^[a-z]+$"
    assert "pattern" not in properties["worded"]
    assert properties["worded"]["x-kubernetes-validations"][0]["message"] == "write small letters"


def test_a_crd_that_outgrows_kubectl_apply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.api.codegen.crdgen.MAX_JSON_BYTES", 1000)
    with pytest.raises(ValueError, match="bytes of JSON"):
        custom_resource_definition(TrainingRun)


def test_rules_of_a_model_and_of_its_fields_reach_the_schema_with_their_words() -> None:
    class Pair(SpecModel):
        """A pair."""

        low: int = 0
        """Low."""
        cross_field_rules: ClassVar = (Rule("self.low > 0", "write more", field=".low"),)

    assert structural_schema(Pair)["x-kubernetes-validations"] == [
        {"rule": "self.low > 0", "message": "write more", "fieldPath": ".low"}
    ]


def test_rules_of_the_whole_spec_first_ask_whether_status_is_written() -> None:
    """The API server tries them at every write of a status too, and each field that they read there has its price."""
    together, unchanged = root_rules(TrainingRunSpec)
    assert together.cel.startswith("oldSelf.hasValue() && (has(self.status) != has(oldSelf.value().status) || ")
    assert unchanged.cel.startswith("has(self.status) != has(oldSelf.status) || ")


def test_no_rule_of_the_whole_spec_stands_where_it_is_tried_with_every_status(crd: dict[str, Any]) -> None:
    assert "x-kubernetes-validations" not in version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"]


def test_the_message_of_all_rules_names_each_field_with_its_remedy() -> None:
    together, _ = root_rules(TrainingRunSpec)
    for rule in TrainingRunSpec.cross_field_rules:
        assert json.dumps(f"spec{rule.field}: {rule.message}.") in together.message_cel


def test_a_group_that_is_left_out_has_not_changed_where_its_defaults_are_written_later() -> None:
    _, unchanged = root_rules(TrainingRunSpec)
    before, after = (
        f'(has({side}.spec.launcher) ? {side}.spec.launcher.type : "Plain")' for side in ("self", "oldSelf")
    )
    assert f"({before} == {after})" in unchanged.cel


def test_who_wrote_which_field_of_a_status_is_not_kept(crd: dict[str, Any]) -> None:
    status = version(crd)["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["x-kubernetes-map-type"] == "atomic"
