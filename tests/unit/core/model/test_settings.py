"""What an installation says: limits, and words for what is beyond them."""

import pytest
from pydantic import ValidationError

from lockstep.core.model.settings import ArchiveConfig, PodPolicy, ScaleUpSettings


@pytest.mark.parametrize("amount", ["8", "500m", ".5", "2.", "2Gi", "1e3", "1E3", "2.5G"])
def test_an_amount_is_a_quantity_of_kubernetes(amount: str) -> None:
    assert ArchiveConfig(cpu=amount, memory=amount).memory == amount


@pytest.mark.parametrize("amount", ["", "2GB", "-1", "1 Gi", "Gi", "2Gi\n"])
def test_what_is_no_amount_is_refused_with_the_remedy(amount: str) -> None:
    with pytest.raises(ValidationError, match="write a quantity as 8, 500m"):
        ArchiveConfig(cpu=amount)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"hostPaths": ["/mnt/../etc"]}, r"hostPaths: /mnt/\.\./etc leads elsewhere; write the path itself"),
        ({"hostPaths": ["mnt"]}, "hostPaths.0"),
        ({"capabilities": ["CAP_SYS_PTRACE"]}, "capabilities: write SYS_PTRACE, as pods do"),
        ({"capabilities": ["sys_ptrace"]}, "capabilities.0"),
        ({"hostPath": ["/mnt"]}, "hostPath\n.*not permitted"),
    ],
)
def test_a_pod_policy_that_cannot_be_meant_is_refused(policy: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PodPolicy.model_validate(policy)


def test_names_that_merely_begin_with_dots_are_paths() -> None:
    given = {"hostPaths": ["/mnt/..data"], "capabilities": ["SYS_PTRACE"], "serviceAccounts": []}
    policy = PodPolicy.model_validate(given)
    assert (policy.host_paths, policy.capabilities, policy.service_accounts) == (("/mnt/..data",), ("SYS_PTRACE",), ())


@pytest.mark.parametrize(
    ("wanted", "served", "by"),
    [
        (True, True, "ProvisioningRequest"),
        (True, False, "Placeholders"),
        (False, True, "Placeholders"),
        (False, False, "Placeholders"),
    ],
)
def test_provisioning_requests_are_made_where_they_are_wanted_and_served(wanted: bool, served: bool, by: str) -> None:
    assert ScaleUpSettings(provisioning_requests=wanted, served=served).by == by
