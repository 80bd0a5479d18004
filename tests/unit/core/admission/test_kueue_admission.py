"""What one admission cycle makes of what Kueue says: nodes, or words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.kueue_status import KueueStatus
from lockstep.core.admission.admit import admit
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, node, run, statuses, world
from support.admitted_by_kueue import RACK, TRUE, admitted, all_in, conditions, hosts, kueues, nodes, passed, told
from support.kueue_double import encode

OTHER = run("other", 1, status=held("n1"))
CLASH = {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "gang", "nodeSelector": {"pool": "b"}}]}


@pytest.mark.parametrize(
    ("status", "changes", "word", "message"),
    [
        (
            {},
            {},
            "WaitingForKueue",
            "of which Kueue has said nothing yet; should that take long, see whether Kueue's manager runs",
        ),
        (
            {"conditions": conditions({"QuotaReserved": "False"}, "ExceedsMaxQuota", "too many")},
            {},
            "WaitingForKueue",
            "Kueue: ExceedsMaxQuota: too many",
        ),
        (
            {
                "conditions": conditions({"QuotaReserved": "False", "Requeued": "False"}, "PodsReadyTimeout", "late"),
                "requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:00Z"},
            },
            {},
            "WaitingForKueue",
            "Kueue holds it back after PodsReadyTimeout: late; Kueue tries again at 2026-01-01T00:00:00Z",
        ),
        (
            {"conditions": conditions({"QuotaReserved": "False", "Requeued": "False"}, "AskedAnew", "n1 is drained")},
            {},
            "WaitingForKueue",
            "its reservation was given back, to ask anew: n1 is drained",
        ),
        (
            {
                **admitted(),
                "conditions": conditions({"QuotaReserved": "True"}),
                "admissionChecks": [{"name": "prov", "state": "Pending", "message": "no machines yet"}],
            },
            {},
            "WaitingForKueue",
            "Kueue has the quota; admission checks are not through: prov is Pending (no machines yet)",
        ),
        (
            {**admitted(), "conditions": conditions({**TRUE, "Evicted": "True"})},
            {},
            "WaitingForKueue",
            "its reservation is being given back",
        ),
        (
            admitted(),
            {"asked": "something else"},
            "WaitingForKueue",
            "the run, or its Workload, has changed since it was admitted",
        ),
        (admitted(), {"owner": "somebody"}, "KueueAssignment", "that is not of this run is in the way; delete it"),
        (admitted(), {"spec": {"active": False}}, "KueueDeactivated", "set its spec.active to true"),
        (admitted(3), {}, "KueueAssignment", "for 3 pods instead of 2"),
        (admitted(topology={"levels": []}), {}, "KueueAssignment", "topologyAssignment has no levels"),
        (admitted(topology=hosts("n1", "n9")), {}, "KueueAssignment", "there is no node with the host name n9"),
        (admitted(topology=hosts("n2", "n2")), {}, "KueueAssignment", "Kueue puts two ranks on n2"),
        (
            admitted(topology=hosts("n1", "n2")),
            {},
            "KueueAssignment",
            "n1 of the nodes that Kueue names is held by others",
        ),
        (admitted(topology=hosts("n2", "n4")), {}, "KueueAssignment", "can be used: 1 cordoned (n4)"),
        (admitted(topology=encode([RACK], [(("r3",), 2)])), {}, "KueueAssignment", "the cluster has no nodes for it"),
        (
            admitted(admissionChecks=[CLASH]),
            {},
            "KueueAssignment",
            "ResourceFlavor gpus and admission check c disagree about pool",
        ),
        (admitted(), {"flavors": {}}, "KueueAssignment", "there is no ResourceFlavor gpus"),
    ],
)
def test_what_keeps_a_run_from_its_nodes_is_told(
    status: dict[str, Any], changes: dict[str, Any], word: str, message: str
) -> None:
    cluster = nodes("n1", "n2", "n3")
    cluster.append(node("n4", "r2", labels={"pool": "a"}, unschedulable=True))
    plan = passed(kueues(), cluster, status, OTHER, **changes)
    found = told(plan)
    assert found[0] == word
    assert message in found[1]
    assert not statuses(plan)["llama"].assignment.nodes


def test_a_run_that_was_edited_gets_its_nodes_once_it_is_judged_and_keeps_its_place_with_kueue() -> None:
    cluster, given = nodes("n1", "n2"), admitted(topology=hosts("n1", "n2"))
    assert statuses(passed(kueues(), cluster, given))["llama"].assignment.nodes == ("n1", "n2")
    assert not statuses(passed(replace(kueues(), generation=2), cluster, given))


def test_whose_nodes_they_are_is_told_as_far_as_it_may_be() -> None:
    plan = passed(kueues(), nodes("n1", "n2"), admitted(topology=hosts("n1", "n2")), OTHER)
    assert statuses(plan)["llama"].queue.blocked_by == ("team/other",)
    assert "other" not in statuses(plan) or not statuses(plan)["other"].stop


def test_who_holds_their_nodes_is_found_once_for_all_of_them() -> None:
    """It is asked of each in every cycle: were all runs looked through for it, a crowd would slow down everybody."""

    class Counted(tuple[RunView, ...]):
        __slots__ = ()
        count = 0

        def __iter__(self) -> Iterator[RunView]:
            Counted.count += 1
            return super().__iter__()

    cluster, looks = nodes("n1", "n2"), list[int]()
    for many in (1, 9):
        waiting = [replace(kueues(), name=f"k{at}", uid=f"uid-k{at}") for at in range(many)]
        snapshot = all_in(waiting, cluster, admitted(topology=hosts("n1", "n2")), OTHER)
        Counted.count = 0
        plan = admit(replace(snapshot, runs=Counted(snapshot.runs)), Tunables(), NOW)
        looks.append(Counted.count)
        assert {statuses(plan)[view.name].queue.blocked_by for view in waiting} == {("team/other",)}
    assert looks[0] == looks[1]


def test_kueues_gangs_are_in_nobodys_quota_and_nobodys_victims() -> None:
    gang_of_kueues = run("kueues", 2, status={**held("n1", "n2"), "kueue": KueueStatus(queue="team")})
    waits = run("ours", 2, priorityClassName="high")
    rules = {
        "default": {
            "quotas": [{"gpuType": "Any", "nominalNodes": 2}],
            "preemption": {"withinQueue": "LowerPriority", "minRuntime": "0s"},
        }
    }
    full = admit(
        world([gang_of_kueues, waits], nodes("n1", "n2", "n3"), queues=rules, classes={"high": 9}), Tunables(), NOW
    )
    assert statuses(full)["ours"].reservation is None
    assert "kueues" not in statuses(full)
    roomy = admit(
        world([gang_of_kueues, waits], nodes("n1", "n2", "n3", "n4"), queues=rules, classes={"high": 9}),
        Tunables(),
        NOW,
    )
    assert statuses(roomy)["ours"].assignment.nodes == ("n3", "n4")
