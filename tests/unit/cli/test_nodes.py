"""What `lockstep nodes` shows and changes."""

from typing import Any, cast

import pytest

from lockstep.api.base import names
from lockstep.cli import client
from lockstep.cli.actions import nodes
from lockstep.cli.client import Cluster
from lockstep.cli.commands.nodes import app
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.main import main
from lockstep.cli.runs import view
from lockstep.cli.views.nodes import listing, show
from lockstep.core.model.snapshot import NodeFailure, NodeView
from support import sample_runs as sample

NOW = sample.NOW
RUNNING = view(sample.running())


def node(name: str, **fields: object) -> NodeView:
    return NodeView(name=name, uid=name, labels={}, allocatable={names.GPU_RESOURCE: 8}, **cast(Any, fields))


def shown(*views: NodeView, wide: bool = False, every: bool = False) -> list[str]:
    return listing(views, [RUNNING], wide=wide, every=every, now=NOW)


def test_each_node_shows_its_run_and_rank_and_idle_ones_only_when_asked_for() -> None:
    used = RUNNING.status.assignment.nodes[1]
    lines = shown(node("idle"), node(used))
    assert len(lines) == 2
    assert lines[1].split()[:5] == [used, "Ready", RUNNING.key, "1", "8"]
    assert len(shown(node("idle"), node(used), every=True)) == 3


@pytest.mark.parametrize(
    ("fields", "state", "why"),
    [
        ({"ready": False}, "NotReady", ""),
        ({"drain": "fan broken"}, "Draining", "draining: fan broken"),
        ({"unschedulable": True}, "Cordoned", ""),
        ({"conditions": {"KernelDeadlock": "AUFSUmountHung"}}, "Unhealthy", "condition KernelDeadlock"),
        ({"failures": (NodeFailure("a/b", NOW - 60, "Hang"),)}, "Ready", ""),
        (
            {
                "failures": (NodeFailure("a/b", NOW - 60, "Hang"), NodeFailure("a/c", NOW - 30, "Hardware")),
                "suspect": "x",
            },
            "Suspect",
            "ranks of 2 runs failed first here within a day",
        ),
    ],
)
def test_the_state_of_a_node_and_why(fields: dict[str, object], state: str, why: str) -> None:
    line = shown(node("gpu-77", **fields), every=True)[1]
    assert line.split()[1] == state
    assert why in line


def test_a_run_that_has_ended_is_on_its_nodes_as_long_as_its_pods_hold_them_and_gives_way_to_the_next() -> None:
    raw = sample.running(leaving={"nodes": 4, "until": sample.at(-90)})
    raw["metadata"] |= {"name": "stuck", "uid": "stuck"}
    raw["status"]["conditions"][-2] = sample.condition("Finished", "True", "Cancelled")
    stuck, one = view(raw), node("gpu-1")
    (line,) = listing([one], [stuck], wide=False, every=False, now=NOW)[1:]
    assert line.split()[:4] == ["gpu-1", "Ready", "team/stuck", "ended"]
    assert "it has ended, and its pods still hold 4 nodes; they are deleted in 90s at the latest" in line
    for runs in ([stuck, RUNNING], [RUNNING, stuck]):
        (line,) = listing([one], runs, wide=False, every=False, now=NOW)[1:]
        assert line.split()[2:4] == [RUNNING.key, "0"]


def test_wide_names_every_failure() -> None:
    line = shown(node("n", failures=(NodeFailure("a/b", NOW - 60, "Hang"),)), wide=True)[1]
    assert "Hang of a/b at " in line


class Recorded:
    """An API server that has one node."""

    def __init__(self) -> None:
        taint = {"key": names.TAINT_SUSPECT, "effect": "PreferNoSchedule"}
        other = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
        self.node = {"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": [taint, other]}}
        self.patch: dict[str, Any] = {}
        self.refuses = False

    def get(self, path: str) -> dict[str, Any]:
        return self.node

    def list(self, path: str) -> dict[str, Any]:
        raise ApiServerError(403, "nodes is forbidden")

    def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.patch = patch
        return self.node


def test_a_drain_says_why_and_keeps_new_work_away() -> None:
    api = Recorded()
    nodes.drain(cast(Cluster, api), ["n"], "fan broken")
    assert api.patch["metadata"]["annotations"] == {names.ANNOTATION_DRAIN: "fan broken"}
    assert api.patch["spec"] == {"unschedulable": True}
    nodes.undrain(cast(Cluster, api), ["n"])
    assert api.patch["metadata"]["annotations"] == {names.ANNOTATION_DRAIN: None}


def test_clearing_a_node_takes_off_its_mark_and_no_other_taint() -> None:
    api = Recorded()
    nodes.clear(cast(Cluster, api), ["n"], NOW)
    assert api.patch["metadata"]["resourceVersion"] == "7"
    assert api.patch["metadata"]["annotations"][names.ANNOTATION_SUSPECT] is None
    assert [taint["key"] for taint in api.patch["spec"]["taints"]] == ["nvidia.com/gpu"]


def test_who_may_not_see_nodes_is_told_whom_to_ask() -> None:
    with pytest.raises(CliError) as refused:
        show(cast(Cluster, Recorded()), "table", "lockstep-system", every=False, now=NOW)
    assert "administrator" in refused.value.remedy


@pytest.mark.parametrize(
    ("allocatable", "labels", "gpus", "why"),
    [
        ({"amd.com/gpu": 4}, {}, "4", ""),
        ({"cpu": 4}, {}, "0", ""),
        ({"cpu": 4}, {"nvidia.com/gpu.present": "true"}, "0", "offering no nvidia.com/gpu now"),
    ],
)
def test_gpus_of_any_make_are_counted_and_those_that_are_away_are_told(
    allocatable: dict[str, int], labels: dict[str, str], gpus: str, why: str
) -> None:
    view = NodeView("gpu-77", "u", labels, allocatable)
    _, line = listing([view], [], wide=False, every=True, now=NOW)
    assert line.split()[4] == gpus
    assert line.endswith(why or "-")
    assert bool(listing([view], [], wide=False, every=False, now=NOW)[1:]) is bool(why)


@pytest.mark.parametrize("verb", [command.name for command in app.registered_commands])
@pytest.mark.parametrize(
    ("before", "behind", "cluster"),
    [
        (["--context", "b"], [], ("b", None)),
        (["--kubeconfig", "f"], ["--context", "b"], ("b", "f")),
        (["--context", "b", "--kubeconfig", "f"], ["--context", "c"], ("c", "f")),
        ([], ["--context", "c"], ("c", None)),
        ([], [], (None, None)),
    ],
)
def test_a_verb_is_for_the_cluster_that_is_named_before_or_behind_it(
    verb: str,
    before: list[str],
    behind: list[str],
    cluster: tuple[str | None, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str | None, ...]] = []

    def connect(namespace: str | None, *named: str | None) -> Cluster:
        seen.append(named)
        raise CliError("no way there")

    monkeypatch.setattr(client, "connect", connect)
    with pytest.raises(SystemExit):
        main(["nodes", *before, verb, *behind, "gpu-1"])
    assert seen == [cluster]


@pytest.mark.parametrize("typed", [["--all"], ["-o", "json"], ["--output", "table"], ["--operator-namespace", "x"]])
def test_what_a_verb_of_nodes_does_not_know_is_not_dropped_in_front_of_it(
    typed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "connect", lambda *_: pytest.fail("nothing is to be changed"))
    with pytest.raises(SystemExit) as end:
        main(["nodes", *typed, "drain", "gpu-1"])
    assert end.value.code == 2
    assert "is of lockstep nodes alone, and not of drain" in capsys.readouterr().err
