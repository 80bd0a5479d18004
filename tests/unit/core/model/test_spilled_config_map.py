"""What is too large for a run's status, in a ConfigMap that goes with the run."""

import pytest

from lockstep.core.model.spilled_config_map import immutable_config_map


@pytest.mark.parametrize("optional", [False, True])
def test_it_never_changes_and_is_deleted_with_its_run(optional: bool) -> None:
    kept = immutable_config_map("ns", "llama", "uid-1", "llama-x", {"a": "b"}, optional=optional)
    assert (kept.namespace, kept.name, kept.optional) == ("ns", "llama-x", optional)
    assert kept.body["immutable"] is True
    assert kept.body["data"] == {"a": "b"}
    meta = kept.body["metadata"]
    assert (meta["name"], meta["namespace"]) == ("llama-x", "ns")
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("TrainingRun", "llama", "uid-1")
    assert meta["labels"]["lockstep.dev/run-uid"] == "uid-1"
