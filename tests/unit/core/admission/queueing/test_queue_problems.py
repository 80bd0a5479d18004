"""What is wrong with a queue beside the others, the configuration and the cluster."""

from typing import Any

import pytest

from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.queueing.queue_problems import problems_of
from lockstep.core.model.snapshot import QueueView

H100, A100, ANY = ({"gpuType": gpu_type, "nominalNodes": 4} for gpu_type in ("H100", "A100", "Any"))


def problems(spec: dict[str, Any], **others: dict[str, Any]) -> list[str]:
    """The reasons given for a queue with ``spec``; GPU types are H100 and A100, the one priority class is high."""
    specs = {"q": spec, **others}
    queues = {name: QueueView(name, TrainingQueueSpec.model_validate(each)) for name, each in specs.items()}
    return [problem.reason for problem in problems_of(queues["q"], queues, ("H100", "A100"), ("high",))]


@pytest.mark.parametrize(
    ("spec", "reasons"),
    [
        ({}, []),
        ({"quotas": [H100, A100, ANY]}, []),
        ({"quotas": [H100 | {"gpuType": "H1000"}]}, ["UnknownGpuType"]),
        ({"quotas": [H100 | {"lendingLimit": 4}]}, []),
        ({"quotas": [H100 | {"lendingLimit": 5}]}, ["LendingLimitTooHigh"]),
        ({"limits": {"defaultTimeLimit": "24h", "maxTimeLimit": "1d"}}, []),
        ({"limits": {"defaultTimeLimit": "25h", "maxTimeLimit": "1d"}}, ["DefaultTimeLimitTooLong"]),
        ({"limits": {"defaultTimeLimit": "25h"}}, []),
        ({"allowedPriorityClasses": ["high"]}, []),
        ({"allowedPriorityClasses": ["low", "high", "hgih"]}, ["PriorityClassNotFound", "PriorityClassNotFound"]),
        (
            {"quotas": [H100 | {"gpuType": "H1000", "lendingLimit": 5}], "cohort": "c"},
            ["UnknownGpuType", "LendingLimitTooHigh", "CohortOfOne"],
        ),
    ],
)
def test_each_mistake_of_a_queue_is_named_once(spec: dict[str, Any], reasons: list[str]) -> None:
    assert problems(spec) == reasons


@pytest.mark.parametrize(
    ("quotas", "theirs", "reasons"),
    [
        ([H100], [H100], []),
        ([H100], [A100], []),
        ([H100 | {"borrowingLimit": 1}], [H100], []),
        ([H100 | {"borrowingLimit": 1}], [A100], ["NothingToBorrow"]),
        ([H100 | {"borrowingLimit": 0}], [A100], []),
        ([ANY], [ANY], []),
        ([ANY], [H100], ["QuotasApart"]),
        ([ANY, H100], [H100], []),
        ([H100], [H100, ANY], []),
    ],
)
def test_queues_of_a_cohort_can_lend_between_entries_of_the_same_type_alone(
    quotas: list[dict[str, Any]], theirs: list[dict[str, Any]], reasons: list[str]
) -> None:
    spec = {"cohort": "c", "quotas": quotas}
    assert problems(spec, r={"cohort": "c", "quotas": theirs}) == reasons
    assert problems(spec, r={"cohort": "d", "quotas": theirs}) == ["CohortOfOne"]
    assert problems(spec) == ["CohortOfOne"]
