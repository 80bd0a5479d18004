"""What the chart grants, against what the operator was seen to need on real API servers (tests/cluster/rights.yaml)."""

from __future__ import annotations

from pathlib import Path

from support.helm import NAMESPACE, Helm
from support.rights import granted, recorded

EVERYTHING = ("--api-versions", "kueue.x-k8s.io/v1beta2", "--set", "config.podGroups.kind=Auto")
CLUSTER_TESTS = Path(__file__).parents[1] / "cluster"


def test_every_right_is_granted_that_is_needed_and_no_other(helm: Helm) -> None:
    rights, needed = granted(helm.objects(*EVERYTHING)), set(recorded())
    assert rights - needed == set(), "granted, and needed by nobody"
    assert needed - rights == set(), "needed, and not granted"


def test_an_installation_for_some_namespaces_has_the_same_rights_and_writes_nowhere_else(helm: Helm) -> None:
    objects = helm.objects("--set", "namespaces={team-a,team-b}", *EVERYTHING)
    assert granted(objects) == set(recorded())
    everywhere = granted(each for each in objects if each["kind"] in ("ClusterRole", "ClusterRoleBinding"))
    writes = {right for right in everywhere if right.rpartition(" ")[2] not in ("get", "list", "watch")}
    assert writes == {
        "nodes patch",
        "tokenreviews.authentication.k8s.io create",
        "trainingqueues.lockstep.dev/status patch",
    }
    bound = {each["metadata"]["namespace"] for each in objects if each["kind"] == "RoleBinding"}
    assert bound == {NAMESPACE, "default", "team-a", "team-b"}


def test_the_page_costs_the_right_to_ask_what_its_readers_may_see(helm: Helm) -> None:
    more = granted(helm.objects("--set", "web.enabled=true")) - granted(helm.objects())
    assert more == {"subjectaccessreviews.authorization.k8s.io create"}


def test_every_right_is_needed_by_a_test() -> None:
    modules = {path.stem for path in CLUSTER_TESTS.glob("test_*.py")}
    assert {right: by for right, by in recorded().items() if by not in modules} == {}
