"""What the spec left open."""

from lockstep.api.run_status import MAX_ENDED_POD_GROUPS, PodGroupStatus, ResolvedStatus, TrainingRunStatus
from lockstep.core.model import resolved_record as record

NOTHING = TrainingRunStatus()


def group(number: int) -> PodGroupStatus:
    return PodGroupStatus(api_version="v1", name=f"group-{number}", min_count=2)


def test_an_admission_says_anew_by_what_the_nodes_came() -> None:
    status = record.record_resolved(NOTHING, ResolvedStatus(), pod_group=group(1), provisioning_request="one")
    again = record.record_resolved(status, status.resolved).resolved
    assert (again.pod_group, again.provisioning_request) == (None, "")


def test_the_group_of_a_launch_that_is_over_is_remembered_and_of_many_the_newest() -> None:
    status = NOTHING
    for number in range(MAX_ENDED_POD_GROUPS + 1):
        status = record.end_pod_group(record.record_resolved(status, status.resolved, pod_group=group(number)))
        assert status.resolved.pod_group is None
    assert [each.name for each in status.ended_pod_groups] == [f"group-{n}" for n in range(1, MAX_ENDED_POD_GROUPS + 1)]
    assert record.end_pod_group(status) is status


def test_each_part_is_changed_by_itself() -> None:
    status = record.restore_resolved(NOTHING, ResolvedStatus(gpu_type="A"))
    status = record.record_size(record.record_template(status, "hash"), 3)
    status = record.record_origin(status, "/ckpt", "other", "uid-other")
    resolved = status.resolved
    assert (resolved.gpu_type, resolved.template_hash, resolved.nodes) == ("A", "hash", 3)
    assert (resolved.start_root, resolved.start_run, resolved.start_run_uid) == ("/ckpt", "other", "uid-other")
    assert record.forget_resolved(status) == NOTHING


def test_what_a_pod_carries_says_nothing_of_what_it_is_hashed_with() -> None:
    resolved = ResolvedStatus(nodes=2, template_hash="hash", unused_gpus="2 of n0")
    assert record.template_part(resolved) == ResolvedStatus(nodes=2)
