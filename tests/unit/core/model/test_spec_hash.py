"""What of a spec a gang is held to."""

import re
from typing import Any

import pytest

from lockstep.api.codegen.root_rules import root_rules
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.spec_hash import FIXED_FIELDS, hash_record, read_hash, spec_hash
from support.world import spec


def test_it_is_of_all_that_the_api_changes_only_while_a_run_is_suspended() -> None:
    (rule,) = [rule for rule in root_rules(TrainingRunSpec) if "oldSelf.spec.suspend" in rule.cel]
    _, held = rule.message_cel.split("changes only while the run is suspended")
    named = set(re.findall(r"' spec\.([\w.]+)'", held))
    whole = {name for name in named for field in FIXED_FIELDS if f"{'.'.join(field)}.".startswith(f"{name}.")}
    assert whole == named
    assert all(any(f"{'.'.join(field)}.".startswith(f"{name}.") for name in named) for field in FIXED_FIELDS)


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({}, True),
        ({"nodes": 3}, True),
        ({"placement": {"excludeNodes": ["n1"]}}, True),
        ({"queue": "default"}, True),
        ({"suspend": True}, True),
        ({"gpusPerNode": 0}, False),
        ({"placement": {"nodes": ["n1", "n2"]}}, False),
        ({"checkpoint": {"shared": {"claimName": "lustre"}, "trustTimes": False}}, False),
        ({"env": [{"name": "A", "value": "1"}]}, False),
        ({"podTemplate": {"spec": {"hostIPC": True}}}, False),
    ],
)
def test_it_differs_with_what_a_running_gang_may_not_change(fields: dict[str, Any], is_same: bool) -> None:
    assert (spec_hash(spec(**fields)) == spec_hash(spec())) is is_same


def test_the_order_counts_where_it_does_to_the_api_servers_rule() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    nodes = ["n1", "n2"]
    said = spec(2, env=env, placement={"nodes": nodes}, command=["a", "b"])
    assert spec_hash(spec(2, env=env[::-1], placement={"nodes": nodes[::-1]}, command=["a", "b"])) == spec_hash(said)
    assert spec_hash(spec(2, env=env, placement={"nodes": nodes}, command=["b", "a"])) != spec_hash(said)


def test_it_is_the_same_in_every_release() -> None:
    """Else an upgrade stops all gangs: where this fails, see to it that they go on before it is written anew."""
    said = {"env": [{"name": "A", "value": "1"}], "gpusPerNode": 0, "podTemplate": {"metadata": {"labels": {"a": "b"}}}}
    assert spec_hash(spec(2, queue="research", **said)) == "70b17bfed8c303bd"


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (hash_record(7, spec()), (7, spec_hash(spec()))),
        ("", (0, "")),
        ("abc", (0, "")),
        ("-1/abc", (0, "")),
        ("7/", (0, "")),
    ],
)
def test_what_is_no_record_of_a_hash_says_nothing(record: str, found: tuple[int, str]) -> None:
    assert read_hash(record) == found
