"""What counts as a request that the operator was refused, and what came of its rights being taken away."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kindcluster import cluster, commands
from kindcluster.cluster import KindCluster
from kindcluster.docker import Docker
from kindcluster.refusals import refused

OPERATOR = "system:serviceaccount:lockstep-system:lockstep-operator"
LEASE = {"resource": "leases", "namespace": "lockstep-system", "name": "lockstep-operator"}
BOTH = ("lockstep-operator", "lockstep-operator-runs")


def request(
    at: float,
    verb: str,
    code: int,
    what: dict[str, str],
    *,
    by: str = "kubernetes-admin",
    takes: float = 0.1,
    pod: str = "",
) -> str:
    entry: dict[str, Any] = {
        "verb": verb,
        "requestURI": f"/{at}",
        "user": {"username": by, "extra": {"authentication.kubernetes.io/pod-name": [pod]} if pod else {}},
        "objectRef": what,
        "responseStatus": {"code": code, "message": "forbidden" if code == 403 else ""},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{at:09.6f}Z",
        "stageTimestamp": f"2026-01-01T00:00:{at + takes:09.6f}Z",
    }
    return json.dumps(entry, separators=(",", ":"))


def binding(at: float, verb: str, name: str, code: int = 200) -> str:
    return request(at, verb, code, {"resource": "clusterrolebindings", "name": name})


def refusal(at: float, takes: float = 0.1, pod: str = "") -> str:
    return request(at, "update", 403, LEASE, by=OPERATOR, takes=takes, pod=pod)


UNINSTALLED = [binding(10 + number, "delete", name) for number, name in enumerate(BOTH)]
INSTALLED = [binding(30 + number, "patch", name, 201) for number, name in enumerate(BOTH)]


@pytest.mark.parametrize(
    ("record", "counts"),
    [
        ([refusal(5)], True),
        ([*UNINSTALLED, refusal(5)], True),
        ([*UNINSTALLED, refusal(9.95)], False),  # decided while the first right went
        ([*UNINSTALLED, refusal(20)], False),
        ([*UNINSTALLED, *INSTALLED, refusal(20)], False),
        ([*UNINSTALLED, *INSTALLED, refusal(30.5)], False),  # one of two is back
        ([*UNINSTALLED, *INSTALLED, refusal(32)], True),
        ([*INSTALLED, refusal(32)], True),
        ([binding(10, "delete", BOTH[0], 404), refusal(20)], True),
        ([binding(10, "delete", "somebody-elses"), refusal(20)], True),
        ([binding(10, "patch", BOTH[0]), refusal(20)], True),
        ([request(20, "update", 200, LEASE, by=OPERATOR)], False),
        ([request(20, "update", 403, LEASE, by="somebody")], False),
    ],
)
def test_what_it_is_refused_counts_unless_its_rights_were_taken_away(record: list[str], counts: bool) -> None:
    random.Random(1).shuffle(record)
    assert bool(refused(record)) is counts


def test_refusals_are_told_oldest_first_with_what_was_asked() -> None:
    assert refused([refusal(7), refusal(5)]) == ["update /5: forbidden", "update /7: forbidden"]


def test_rights_that_went_twice_are_missed_both_times_and_not_between() -> None:
    again = [binding(50, "delete", BOTH[0]), binding(60, "create", BOTH[0], 201)]
    record = [*UNINSTALLED, *INSTALLED, *again, *(refusal(at) for at in (20, 40, 55, 65))]
    assert refused(record) == ["update /40: forbidden", "update /65: forbidden"]


def test_pods_that_another_release_is_replacing_are_not_asked_about() -> None:
    record = [refusal(5, pod="old"), refusal(6, pod="new"), refusal(7)]
    assert refused(record, {"old"}) == ["update /6: forbidden", "update /7: forbidden"]


class OfOneNode(Docker):
    """What is to be run in a node runs here."""

    def __call__(self, *arguments: str | Path) -> str:
        return commands.output(arguments[2:])


@pytest.mark.process
def test_the_record_is_read_whole_also_after_the_api_server_began_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_AUDIT", str(tmp_path))
    kind = KindCluster(OfOneNode({}, tmp_path), tmp_path)
    (tmp_path / "audit.log").write_text(f"{refusal(9)}\n")
    assert kind.refusals() == ["update /9: forbidden"]
    (tmp_path / "audit-2026-01-01T00-00-08.000.log").write_text(f"{refusal(5)}\n{refusal(7)}\n")
    assert kind.refusals() == [f"update /{at}: forbidden" for at in (5, 7, 9)]
