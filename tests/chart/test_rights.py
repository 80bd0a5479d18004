"""What the chart grants, against what the operator was seen to need on real API servers (tests/cluster/rights.yaml).

An installation for one namespace is held to what it needs there by test_rights_in_one_namespace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.helm import NAMESPACE, VALUES, Helm
from support.rights import UNSEEN, Right, Scope, granted, lacking, listed, recorded, right

CLUSTER_TESTS = Path(__file__).parents[1] / "cluster"
KUEUE = ("--api-versions", "kueue.x-k8s.io/v1beta2")
POD_GROUPS = ("--set", "config.podGroups.kind=Auto")
SCALE_UP = ("--set", "config.scaleUp.provisioningRequests=true")
LOOK_UP = ("--set", "config.lookUp.secrets=true")
SECRETS = right(Scope.RUNS, "secrets get")


def needed(*settings: str) -> set[Right]:
    """On record, but for what only other settings need. Where runs may be anywhere, so may what is said of nodes."""
    groups = ("kueue.x-k8s.io",) * (KUEUE[1] not in settings)
    resources = ("podgroups.",) * (POD_GROUPS[1] not in settings)
    resources += ("provisioningrequests.", "podtemplates") * (SCALE_UP[1] not in settings)
    return {
        each._replace(scope=Scope.RUNS if each.scope is Scope.NODE_EVENTS else each.scope)
        for each in recorded()
        if not any(group in each.resource for group in groups) and not each.resource.startswith(resources)
        if each != SECRETS or LOOK_UP[1] in settings
    }


def unused(grants: set[Right], *settings: str) -> set[Right]:
    return grants - needed(*settings) - UNSEEN.keys()


@pytest.mark.parametrize(
    "settings", [(), KUEUE, POD_GROUPS, SCALE_UP, LOOK_UP, KUEUE + POD_GROUPS + SCALE_UP], ids=" ".join
)
def test_every_right_is_granted_that_is_needed_and_no_other(helm: Helm, settings: tuple[str, ...]) -> None:
    grants = granted(helm.objects(*settings))
    assert listed(unused(grants, *settings)) == "", "granted, and needed by nobody"
    assert listed(lacking(needed(*settings), grants)) == "", "needed, and not granted"


@pytest.mark.parametrize(
    ("role", "rule", "told"),
    [
        ("lockstep-operator", {"resources": ["secrets"], "verbs": ["get"]}, "cluster: secrets get"),
        ("lockstep-operator", {"resources": ["pods"], "verbs": ["create"]}, "cluster: pods create"),
        ("lockstep-operator-runs", {"resources": ["pods"], "verbs": ["list"]}, "runs: pods list"),
        ("lockstep-operator-runs", {"resources": ["configmaps"], "verbs": ["update"]}, "runs: configmaps update"),
        (
            "lockstep-operator-runs",
            {"resources": ["configmaps"], "verbs": ["delete"], "resourceNames": ["lockstep-worker-ca"]},
            "runs: configmaps delete lockstep-worker-ca",
        ),
    ],
)
def test_a_right_that_is_wider_than_what_is_needed_is_reported(
    helm: Helm, role: str, rule: dict[str, Any], told: str
) -> None:
    assert reported(helm.objects(), "ClusterRole", role, rule) == {told}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"resources": ["secrets"], "verbs": ["get"]}, "own: secrets get"),
        ({"resources": ["pods"], "verbs": ["delete"]}, "own: pods delete"),
        (
            {"resources": ["configmaps"], "verbs": ["delete"], "resourceNames": ["lockstep-usage"]},
            "own: configmaps delete lockstep-usage",
        ),
    ],
)
def test_so_is_one_in_the_operators_own_namespace(helm: Helm, rule: dict[str, Any], told: str) -> None:
    assert reported(helm.objects(), "Role", "lockstep-operator", rule) == {told}


def reported(objects: list[dict[str, Any]], kind: str, name: str, rule: dict[str, Any]) -> set[str]:
    """What is unused once a role of this name has one more rule."""
    (role,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    role["rules"].append({"apiGroups": [""], **rule})
    return set(map(str, unused(granted(objects))))


def test_an_installation_for_some_namespaces_has_the_same_rights_and_writes_nowhere_else(helm: Helm) -> None:
    settings = KUEUE + POD_GROUPS + SCALE_UP
    objects = helm.objects("--set", "namespaces={team-a,team-b}", *settings)
    of_nodes = {right(Scope.NODE_EVENTS, f"events.events.k8s.io {verb}") for verb in ("create", "patch")}
    assert granted(objects) == granted(helm.objects(*settings)) | of_nodes
    writes = {each.words for each in granted(objects) if each.scope is Scope.CLUSTER and each.verb in WRITES}
    assert writes == {
        "nodes patch",
        "tokenreviews.authentication.k8s.io create",
        "trainingqueues.lockstep.dev/status patch",
    }
    bound = {each["metadata"]["namespace"] for each in objects if each["kind"] == "RoleBinding"}
    assert bound == {NAMESPACE, "default", "team-a", "team-b"}
    for_runs = [each for each in objects if each["kind"] == "RoleBinding" and each["metadata"]["namespace"] == "team-a"]
    assert {each["roleRef"]["name"] for each in for_runs} == {
        f"lockstep-operator-{each}" for each in ("runs", "kueue-runs", "pod-groups-runs", "scale-up-runs")
    }


def test_that_secrets_are_looked_up_costs_the_right_to_get_them_and_no_list(helm: Helm) -> None:
    assert granted(helm.objects(*LOOK_UP)) - granted(helm.objects()) == {SECRETS}


WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_no_secret_can_be_read_but_the_operators_own_no_config_map_listed_and_no_role_changed(
    helm: Helm, values: Path
) -> None:
    grants = granted(helm.objects("--values", values, *KUEUE, *POD_GROUPS, *SCALE_UP, "--set", "web.enabled=true"))
    assert {str(each) for each in grants if each.resource.startswith("secrets")} == {
        "own: secrets create",
        "own: secrets get lockstep-worker-tls",
        "own: secrets update lockstep-worker-tls",
    }
    assert {each.verb for each in grants if each.resource.startswith("configmaps")} == {"get", "create", "update"}
    powers = ("rbac.authorization.k8s.io", "serviceaccounts", "certificatesigningrequests", "*")
    assert listed(each for each in grants if any(power in each.resource for power in powers)) == ""
    assert {each.verb for each in grants} <= {"get", "list", "watch"} | WRITES - {"deletecollection"}


def test_the_page_costs_the_right_to_ask_what_its_readers_may_see(helm: Helm) -> None:
    more = granted(helm.objects("--set", "web.enabled=true")) - granted(helm.objects())
    assert more == {right(Scope.CLUSTER, "subjectaccessreviews.authorization.k8s.io create")}


def test_what_no_test_needs_is_not_on_record(helm: Helm) -> None:
    assert UNSEEN.keys() <= granted(helm.objects()) - set(recorded())


def test_every_right_is_needed_by_a_test() -> None:
    modules = {path.stem for path in CLUSTER_TESTS.glob("test_*.py")}
    assert listed(each for each, by in recorded().items() if by not in modules) == ""
