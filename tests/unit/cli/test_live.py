"""`explain` finds what the operator's admission cycle would find, or says why it does not look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli import live, runs
from lockstep.cli.errors import ApiServerError
from lockstep.cli.views import explain
from lockstep.core.admission.queueing.fair_share import UsageBook
from lockstep.present.amounts import local_time
from lockstep.present.explanation import LiveAdmission, NotLive
from support import sample_runs as sample
from support.cli_server import CliServer
from support.sample_runs import NOW


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {names.LABEL_HOSTNAME: name}},
        "status": {
            "allocatable": {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def daemon(on: str, gpus: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "daemon", "namespace": "kube-system", "uid": "d", "resourceVersion": "1"},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]},
        "status": {"phase": "Running"},
    }


def serving(
    hidden: str = "", kept: Mapping[str, dict[str, str]] | None = None, **lists: list[dict[str, Any]]
) -> CliServer:
    """Lists what it was given; ``hidden`` resources may not be read. ``kept``: the operator's own ConfigMaps."""
    maps = {f"lockstep-system/configmaps/{name}": {"data": data} for name, data in (kept or {}).items()}
    return CliServer(maps, lists=lists, refusals={hidden: ApiServerError(403, "forbidden", name=hidden)})


def admission(server: CliServer, raw: dict[str, Any]) -> LiveAdmission:
    return live.admission(server, runs.view(raw), NOW)


def settings(**config: Any) -> dict[str, dict[str, str]]:
    """The operator's ConfigMap, with a field that only a newer version knows."""
    return {"lockstep-operator": {"operator.yaml": yaml.safe_dump({**config, "ofANewerVersion": 1})}}


def about(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": sample.at(0), **more}


def nodes(count: int, **labels: str) -> list[dict[str, Any]]:
    found = [node(f"gpu-{number}") for number in range(count)]
    for each in found:
        each["metadata"]["labels"] |= labels
    return found


def holder() -> dict[str, Any]:
    raw = sample.running()
    raw["metadata"] |= {"name": "holder", "uid": "other"}
    return raw


def test_holders_of_nodes_and_what_lacks_are_computed_by_the_admission_pass() -> None:
    nodes = [node(f"gpu-{n}") for n in (1, 2, 10, 11, 12)]
    found = admission(serving(nodes=nodes, trainingruns=[sample.pending(), holder()]), sample.pending())
    assert found.queue.reason == "Resources"
    assert found.queue.message.startswith("needs 4 nodes, 1 fit")
    assert found.holders == (("team/holder", ("gpu-1", "gpu-2", "gpu-10", "gpu-11")),)
    assert found.nodes == 5


def test_holders_that_report_steps_are_named_with_their_end_by_that_pace() -> None:
    nodes, paced = [node(f"gpu-{n}") for n in (1, 2, 10, 11, 12)], holder()
    paced["status"]["progress"] |= {"stepMicroseconds": 500_000, "expectedEnd": sample.at(-2400)}
    found = admission(serving(nodes=nodes, trainingruns=[sample.pending(), paced]), sample.pending())
    assert found.ends["team/holder"].startswith("at its pace ends in 40m (")
    assert found.queue.estimated_start is None, "it has no limit: by its pace nothing is promised"
    assert "which at its pace ends in 40m" in "".join(explain.explanation(runs.view(sample.pending()), found, NOW))
    nothing = admission(serving(nodes=nodes, trainingruns=[sample.pending(), holder()]), sample.pending())
    assert nothing.ends == {}


@pytest.mark.parametrize(
    ("save_in", "pace_in", "words"),
    [
        (3000, None, "is asked to save in 50m ({save}) and ends once it has, by {over} at the latest"),
        (3000, 86_400, "is asked to save in 50m ({save}) and ends once it has, by {over} at the latest"),
        (3000, 2400, "at its pace ends in 40m ({pace})"),
        (None, 2400, "at its pace ends in 40m ({pace})"),
        (None, None, ""),
        (-60, None, ""),  # which it was
    ],
)
def test_holders_that_may_end_before_their_limit_are_named_with_what_comes_first(
    save_in: int | None, pace_in: int | None, words: str
) -> None:
    """The start that is told rests on the limit."""
    limited = holder()
    limit: dict[str, Any] = {"seconds": 4200, "endAt": sample.at(-3540), "overAt": sample.at(-3600)}
    limited["status"]["timeLimit"] = limit | ({} if save_in is None else {"saveAt": sample.at(-save_in)})
    if pace_in is not None:
        limited["status"]["progress"] |= {"stepMicroseconds": 500_000, "expectedEnd": sample.at(-pace_in)}
    nodes = [node(f"gpu-{n}") for n in (1, 2, 10, 11, 12)]
    found = admission(serving(nodes=nodes, trainingruns=[sample.pending(), limited]), sample.pending())
    save, over, pace = (local_time(NOW + left) for left in (save_in or 0, 3600, pace_in or 0))
    assert found.ends.get("team/holder", "") == words.format(save=save, over=over, pace=pace)


def test_who_waits_is_told_the_time_that_its_queue_will_give_it() -> None:
    queue = {"metadata": about("default"), "spec": {"limits": {"defaultTimeLimit": "1h"}}}
    found = admission(serving(trainingqueues=[queue], trainingruns=[sample.pending()]), sample.pending())
    told = "\n".join(explain.explanation(runs.view(sample.pending()), found, NOW))
    assert "Its time is to be 1h with its nodes; after 50m all ranks are asked to save, " in told


def test_what_pods_of_others_use_is_counted() -> None:
    nodes = [node(f"gpu-{n}") for n in range(4)]
    server = serving(nodes=nodes, pods=[daemon("gpu-2", "1")], trainingruns=[sample.pending()])
    assert "short of nvidia.com/gpu (gpu-2: " in admission(server, sample.pending()).queue.message


def test_nodes_whose_gpus_are_away_are_named_to_who_waits_for_them() -> None:
    nodes = [node(f"gpu-{n}") for n in range(4)]
    nodes[3]["status"]["capacity"] = dict(nodes[3]["status"]["allocatable"])
    nodes[3]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    found = admission(serving(nodes=nodes, trainingruns=[sample.pending()]), sample.pending())
    assert found.queue.reason == "DevicesNotOffered"
    (sentence, *_) = [
        words for words in explain.explanation(runs.view(sample.pending()), found, NOW) if "waits" in words
    ]
    assert "for nodes to offer devices that they have: needs 4 nodes, 3 fit: 1 offering no nvidia.com/gpu" in sentence
    assert "(gpu-3: its device plugin or driver is away)" in sentence


def test_what_counts_as_gpus_is_what_the_operator_says() -> None:
    nodes = [node(f"npu-{n}") for n in range(4)]
    for each in nodes:
        each["status"]["allocatable"]["example.com/npu"] = each["status"]["allocatable"].pop("nvidia.com/gpu")
    lists: Any = {"nodes": nodes, "trainingruns": [sample.pending()]}
    assert "short of nvidia.com/gpu" in admission(serving(**lists), sample.pending()).queue.message
    told = settings(accelerators=[{"resource": "example.com/npu"}])
    assert admission(serving(kept=told, **lists), sample.pending()).queue.reason == ""


def test_what_only_holds_a_place_for_the_run_is_in_nobodys_way() -> None:
    raw = sample.pending()
    raw["status"]["scaleUp"] = {"by": "Placeholders", "nodes": 4, "generation": 1}
    uid, name = raw["metadata"]["uid"], raw["metadata"]["name"]
    place = daemon("gpu-2", "8")
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": name, "uid": uid, "controller": True}
    place["metadata"] |= {
        "name": f"{names.scale_up_name(name, uid)}-0",
        "namespace": "team",
        "labels": {names.LABEL_PLACEHOLDER_OF: uid},
        "ownerReferences": [owner],
    }
    place["spec"]["priority"] = -10
    nodes = [node(f"gpu-{n}") for n in range(4)]
    assert admission(serving(nodes=nodes, pods=[place], trainingruns=[raw]), raw).queue.reason == ""
    del raw["status"]["scaleUp"]
    assert admission(serving(nodes=nodes, pods=[place], trainingruns=[raw]), raw).queue.reason != ""


def test_a_run_whose_nodes_are_free_waits_for_nothing() -> None:
    nodes = [node(f"gpu-{n}") for n in range(4)]
    assert admission(serving(nodes=nodes, trainingruns=[sample.pending()]), sample.pending()).queue.reason == ""


def test_who_is_in_front_is_named_with_what_it_lacks() -> None:
    first = sample.pending("first", position=1)
    first["metadata"] |= {"uid": "first", "creationTimestamp": sample.at(9000)}
    nodes = [node("gpu-1"), node("gpu-2"), node("gpu-10"), node("gpu-11")]
    found = admission(serving(nodes=nodes, trainingruns=[sample.pending(), first, holder()]), sample.pending())
    assert found.queue.reason == "Priority"
    assert [(key, queue.reason) for key, queue in found.ahead] == [("team/first", "Resources")]


def test_runs_that_have_ended_stand_in_front_of_nobody_whatever_place_they_had() -> None:
    ended = sample.pending("ended", position=1)
    ended["metadata"] |= {"uid": "ended", "creationTimestamp": sample.at(9000)}
    ended["status"]["conditions"].append(sample.condition("Finished", "True", "Cancelled"))
    suspended = sample.pending("suspended", position=1)
    suspended["metadata"] |= {"uid": "suspended", "creationTimestamp": sample.at(9000)}
    suspended["spec"] = suspended["spec"] | {"suspend": True}
    first = sample.pending("first", position=1)
    first["metadata"] |= {"uid": "first", "creationTimestamp": sample.at(9000)}
    everybody = [sample.pending(), first, ended, suspended, holder()]
    found = admission(
        serving(nodes=[node(f"gpu-{n}") for n in (1, 2, 10, 11)], trainingruns=everybody), sample.pending()
    )
    assert found.queue.position == 2
    assert [key for key, _ in found.ahead] == ["team/first"]


def test_what_is_said_of_one_run_goes_with_what_is_said_of_the_others_however_lately_either_was_told() -> None:
    """Its status would be written again only seconds later."""
    stale = sample.pending(position=1, message="needs 4 nodes, 3 fit: 1 booked by runs", updated=sample.at(1))
    found = admission(serving(nodes=[node(f"gpu-{n}") for n in (1, 2, 10, 11)], trainingruns=[stale, holder()]), stale)
    assert found.queue.message.startswith("needs 4 nodes, 0 fit: 4 booked by runs")


@pytest.mark.parametrize(("told", "shown"), [(3570, 3570), (3000, 3600), (None, 3600)])
def test_an_estimate_is_the_number_that_status_tells_unless_that_would_be_told_anew(
    told: int | None, shown: int
) -> None:
    until = {"admission": {"timeLimit": 3600, "askedLimit": "1h"}, "lastAdmitted": sample.at(0)}
    busy = holder()
    busy["status"] |= until
    said = {} if told is None else {"estimatedStart": sample.at(-told), "updated": sample.at(0)}
    mine = sample.pending(position=1, **said)
    found = admission(serving(nodes=[node(f"gpu-{n}") for n in (1, 2, 10, 11)], trainingruns=[mine, busy]), mine)
    assert found.queue.estimated_start == NOW + shown


def test_classes_labels_and_shares_count_as_they_do_for_the_operator() -> None:
    queue: dict[str, Any] = {"metadata": about("default")}
    queue["spec"] = {"namespaceSelector": {"matchLabels": {"kind": "lab"}}}
    lists: dict[str, Any] = {
        "nodes": [node(f"gpu-{n}") for n in range(3)],
        "trainingqueues": [queue],
        "namespaces": [{"metadata": {"name": "team", "labels": {"kind": "lab"}}}],
        "priorityclasses": [{"metadata": {"name": "production"}, "value": 1000}],
    }
    mine = sample.pending(factors={"fairShare": 100}, updated=sample.at(5))
    urgent = sample.pending("urgent", position=1)
    urgent["spec"] = sample.SPEC | {"priorityClassName": "production"}
    urgent["metadata"] |= {"uid": "urgent", "creationTimestamp": sample.at(60)}
    found = admission(serving(**lists, trainingruns=[mine, urgent]), mine)
    assert found.queue.position == 2
    assert found.queue.factors["fairShare"] == 100
    lists["namespaces"] = [{"metadata": {"name": "team"}}]
    assert admission(serving(**lists, trainingruns=[mine, urgent]), mine).queue.reason == "NamespaceNotAllowed"


@pytest.mark.parametrize(
    "hidden",
    ["nodes", "pods", "trainingruns", "trainingrunsets", "trainingqueues", "namespaces", "priorityclasses"],
)
def test_without_the_right_to_read_the_cluster_nothing_is_made_up(hidden: str) -> None:
    with pytest.raises(NotLive, match="you may not read the"):
        admission(serving(hidden), sample.pending())


def test_the_rules_of_a_queue_that_cannot_be_read_are_left_to_the_operator_which_may_know_its_last() -> None:
    queue = {"metadata": about("other"), "spec": {"stopPolicy": "Perhaps"}}
    with pytest.raises(NotLive, match="the operator alone knows the rules of queue other, whose spec cannot be read"):
        admission(serving(nodes=nodes(4), trainingqueues=[queue], trainingruns=[sample.pending()]), sample.pending())


ON_B300 = sample.pending() | {"spec": sample.SPEC | {"placement": {"gpuTypes": ["B300"]}}}
IN_SPINES = sample.pending() | {"spec": sample.SPEC | {"placement": {"topology": [{"level": "spine"}]}}}


@pytest.mark.parametrize(
    "raw",
    [
        *(
            sample.pending(reason=reason)
            for reason in (
                "NoNewAdmissions",
                "ClusterDisruption",
                "AdmissionRefused",
                "Undecidable",
                "GpuHoursUnknown",
                "GpuHoursLimit",
                "Window",
            )
        ),
        ON_B300,
        IN_SPINES,
    ],
)
@pytest.mark.parametrize("hidden", ["", "configmaps"])
def test_what_only_the_operator_knows_is_left_to_it(raw: dict[str, Any], hidden: str) -> None:
    with pytest.raises(NotLive, match="operator"):
        admission(serving(hidden, nodes=nodes(4), trainingruns=[raw]), raw)


def test_names_that_only_the_operator_knows_count_whoever_uses_them() -> None:
    queue = {"metadata": about("other"), "spec": {"quotas": [{"gpuType": "B300", "nominalNodes": 8}]}}
    with pytest.raises(NotLive, match="B300 is a name of the operator's settings, and there is no ConfigMap"):
        admission(serving(nodes=nodes(4), trainingqueues=[queue], trainingruns=[sample.pending()]), sample.pending())
    ON_B300["metadata"] = ON_B300["metadata"] | {"uid": "other", "name": "other"}
    with pytest.raises(NotLive, match="B300"):
        admission(serving(nodes=nodes(4), trainingruns=[sample.pending(), ON_B300]), sample.pending())


class TestSettingsOfTheOperator:
    def test_where_they_may_be_read_names_of_them_are_known(self) -> None:
        kept = settings(gpuTypes={"B300": {"gpu": "b300"}})
        queue = {"metadata": about("default"), "spec": {"quotas": [{"gpuType": "B300", "nominalNodes": 8}]}}
        server = serving(kept=kept, nodes=nodes(4, gpu="b300"), trainingqueues=[queue], trainingruns=[sample.pending()])
        assert admission(server, sample.pending()).queue.reason == ""
        server.lists["nodes"] = nodes(4, gpu="other")
        found = admission(server, sample.pending())
        assert (found.queue.reason, found.unread) == ("Placement", "")

    def test_where_they_may_be_read_a_window_is_what_they_say(self) -> None:
        window = {"name": "firmware", "start": sample.at(-3600), "duration": "2h"}
        raw = sample.pending(reason="Window")
        lists = {"nodes": nodes(4), "trainingruns": [raw]}
        assert admission(serving(kept=settings(admission={"windows": [window]}), **lists), raw).queue.reason == "Window"
        assert admission(serving(kept=settings(), **lists), raw).queue.reason == ""

    def test_where_they_may_be_read_the_mode_is_what_they_say(self) -> None:
        raw = sample.pending(reason="ReportOnly")
        lists = {"nodes": nodes(4), "trainingruns": [raw]}
        assert admission(serving(kept=settings(mode="ReportOnly"), **lists), raw).queue.reason == "ReportOnly"
        with pytest.raises(NotLive, match="mode"):  # it was told another by its environment, or long ago
            admission(serving(kept=settings(mode="Active"), **lists), raw)

    def test_runs_in_namespaces_that_the_operator_does_not_look_after_are_no_part_of_it(self) -> None:
        theirs = sample.pending("theirs")
        theirs["metadata"] |= {"namespace": "other", "uid": "theirs", "creationTimestamp": sample.at(9000)}
        lists = {"nodes": nodes(4), "trainingruns": [sample.pending(), theirs]}
        assert admission(serving(**lists), sample.pending()).queue.reason == "Resources"
        assert admission(serving(kept=settings(namespaces=["team"]), **lists), sample.pending()).queue.reason == ""
        with pytest.raises(NotLive, match="does not look after namespace team"):
            admission(serving(kept=settings(namespaces=["other"]), **lists), sample.pending())

    @pytest.mark.parametrize(
        ("hidden", "kept", "why"),
        [
            ("configmaps", {}, "you may not read ConfigMap lockstep-operator of namespace lockstep-system"),
            ("", {}, "there is no ConfigMap lockstep-operator of namespace lockstep-system"),
            ("", settings(mode="Lazy"), "what is in ConfigMap .* is not for this version"),
            ("", {"lockstep-operator": {"operator.yaml": "[]: ["}}, "is not for this version"),
            ("", {"lockstep-operator": {"other.yaml": ""}}, "is not for this version"),
        ],
    )
    def test_else_that_is_said_and_nothing_is_promised(self, hidden: str, kept: Any, why: str) -> None:
        raw = sample.pending()
        found = admission(serving(hidden, kept, nodes=nodes(4), trainingruns=[raw]), raw)
        assert found.queue.reason == ""
        said = " ".join(explain.explanation(runs.view(raw), found, NOW))
        assert f"unless a setting of its own forbids it ({found.unread})" in said
        with pytest.raises(NotLive, match=why):
            admission(serving(hidden, kept, nodes=nodes(4), trainingruns=[ON_B300]), ON_B300)

    def test_what_users_used_is_read_from_its_book_or_else_from_what_it_last_told(self) -> None:
        mine = sample.pending(factors={"age": 1}, updated=sample.at(500))
        newer = sample.pending("newer", factors={"fairShare": 4000}, updated=sample.at(5))
        newer["metadata"] |= {"uid": "newer"}
        lacking = sample.running() | {"metadata": newer["metadata"] | {"uid": "lacking", "name": "lacking"}}
        lacking["status"]["queue"] = {"reason": "Resources", "updated": sample.at(1)}
        lists = {"nodes": nodes(3), "trainingruns": [mine, newer, lacking]}
        assert admission(serving(**lists), mine).queue.factors["fairShare"] == 4000
        book = UsageBook(NOW, {("default", "team", ""): 3600.0, ("default", "other", ""): 3600.0})
        kept = {"lockstep-usage": {"usage.json": json.dumps(book.dump())}}
        assert admission(serving(kept=kept, **lists), mine).queue.factors["fairShare"] == 3535  # both have used half
        kept = {"lockstep-usage": {"usage.json": "{}"}}
        assert admission(serving(kept=kept, **lists), mine).queue.factors["fairShare"] == 4000


class TestGpuHours:
    def found(self, told: str, used: int | None) -> str:
        spec = {"limits": {"gpuHoursPerDay": 1000}}
        status = {} if used is None else {"gpuHoursLastDay": used}
        queue = {"metadata": about("default"), "spec": spec, "status": status}
        raw = sample.pending(reason=told)
        server = serving(nodes=nodes(12), trainingqueues=[queue], trainingruns=[raw])
        return admission(server, raw).queue.reason

    @pytest.mark.parametrize("used", [None, 10, 1000])  # the queue may have said so long ago
    def test_a_run_that_waits_for_nodes_does_not_wait_for_hours(self, used: int | None) -> None:
        assert self.found("Resources", used) == ""

    def test_one_that_was_told_nothing_yet_hears_what_its_queue_says(self) -> None:
        assert self.found("", 10) == ""
        assert self.found("", 1000) == "GpuHoursLimit"

    def test_one_that_waits_for_hours_goes_on_doing_so(self) -> None:
        assert self.found("GpuHoursLimit", 1001) == "GpuHoursLimit"


class TestArrays:
    def member(self, index: int, **queue: Any) -> dict[str, Any]:
        raw = sample.pending(f"sweep-{index}", **queue)
        owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "name": "sweep", "uid": "sweep"}
        raw["metadata"] |= {"uid": f"i{index}", "ownerReferences": [owner | {"controller": True}]}
        raw["metadata"]["creationTimestamp"] = sample.at(900 - index)
        return raw

    def sweep(self, **spec: Any) -> dict[str, Any]:
        template = {"spec": {"nodes": 4, "image": "i", "command": ["train"]}}
        return {"metadata": about("sweep", namespace="team"), "spec": {"indices": "0-9", "template": template, **spec}}

    def test_who_waits_for_the_width_of_its_array_is_told_so(self) -> None:
        mine = self.member(2, reason="MaxRunning", position=0)
        runs_of = [self.member(1), mine]
        server = serving(nodes=nodes(20), trainingrunsets=[self.sweep(maxRunning=1)], trainingruns=runs_of)
        assert admission(server, mine).queue.reason == "MaxRunning"
        server.lists["trainingrunsets"] = [self.sweep(maxRunning=2)]
        assert admission(server, mine).queue.reason == ""
        server.lists["trainingrunsets"] = []
        with pytest.raises(NotLive, match="maxRunning of its array could not be read"):
            admission(server, mine)

    def test_what_an_array_says_to_its_runs_holds_here_too(self) -> None:
        first, mine = self.member(1), self.member(2)
        server = serving(nodes=nodes(4), trainingrunsets=[self.sweep()], trainingruns=[first, mine])
        assert admission(server, mine).queue.reason == "Resources"
        server.lists["trainingrunsets"] = [self.sweep(cancelIndices="1")]
        assert admission(server, mine).queue.reason == ""


def test_where_it_cannot_be_read_what_is_kept_for_a_run_nothing_is_made_up() -> None:
    raw = sample.pending(reason="Preempting")
    raw["status"]["reservation"] = {"configMap": "large", "hash": "h", "time": sample.at(9), "deadline": sample.at(-9)}
    server = serving(nodes=nodes(4), trainingruns=[raw])
    with pytest.raises(NotLive, match="what is kept for it could not be read"):
        admission(server, raw)


def test_who_is_not_tried_for_now_is_in_nobodys_way() -> None:
    refused = sample.pending("first", reason="AdmissionRefused", estimatedStart=sample.at(-60))
    refused["metadata"] |= {"uid": "first", "creationTimestamp": sample.at(9000)}
    found = admission(serving(nodes=nodes(4), trainingruns=[sample.pending(), refused]), sample.pending())
    assert found.queue.reason == ""
    refused["status"]["queue"] = {"reason": "Undecidable"}
    found = admission(serving(nodes=nodes(4), trainingruns=[sample.pending(), refused]), sample.pending())
    assert found.queue.reason == ""


def test_nodes_that_may_not_be_read_are_simply_not_shown() -> None:
    assert live.readable_nodes(serving("nodes")) == {}


@pytest.mark.parametrize(("debug_until", "wait"), [(None, "2m"), (sample.at(-3600), "62m")])
def test_nodes_that_pods_of_an_ended_run_still_hold_are_said_to_be_until_when(
    debug_until: str | None, wait: str
) -> None:
    ended = holder()
    ended["status"]["conditions"] = [sample.condition("Finished", "True", "AllRanksSucceeded", seconds_ago=0)]
    ended["status"]["recovery"] = {"debugUntil": debug_until} if debug_until else {}
    pod = daemon("gpu-1", "8")
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingRun",
        "name": "holder",
        "uid": "other",
        "controller": True,
    }
    pod["metadata"] = about("holder-other-0-1", namespace="team", ownerReferences=[owner])
    machines = [node(f"gpu-{number}") for number in (1, 2, 10)]
    server = serving(nodes=machines, pods=[pod], trainingruns=[sample.pending(), ended])
    found = admission(server, sample.pending())
    told = list(explain.explanation(runs.view(sample.pending()), found, NOW))
    assert f"  1 node held by team/holder, which has ended; its pods are deleted in {wait} at the latest: gpu-1" in told
