"""What is scraped, and which alert it makes fire: each alert fires in one case at least, and is quiet in another.

Samples are a minute apart, in promtool's notation: `0+60x30` is 0, 60, 120, ... thirty-one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

RUN = '{namespace="team",run="llama"}'
RUN_LABELS = {"namespace": "team", "run": "llama"}


@dataclass(frozen=True)
class Case:
    """What is seen, and at ``minute`` the alert says ``summary`` with ``labels``; empty: it does not fire."""

    alert: str
    when: str
    series: dict[str, str]
    minute: int
    summary: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def requests(failed: str, good: str) -> dict[str, str]:
    return {
        'lockstep_api_requests_total{verb="create",resource="pods",code="503"}': failed,
        'lockstep_api_requests_total{verb="create",resource="pods",code="201"}': good,
    }


def ended(cause: str, values: str) -> dict[str, str]:
    return {f'lockstep_attempts_ended_total{{cause="{cause}",action="RestartInPlace"}}': values}


def _told_by(metric: str, instance: str) -> str:
    return f'{metric}{{namespace="team",run="llama",instance="{instance}"}}'


def spent(productive: str, otherwise: str, instance: str = "", gpu_hours: str = "0+1x500") -> dict[str, str]:
    """What a run has told of its time. It reports steps, and has trained most of its life."""
    told = _told_by("lockstep_run_seconds", instance)[:-1]
    return {
        f'{told},bucket="productive"}}': productive,
        f'{told},bucket="restart"}}': otherwise,
        _told_by("lockstep_run_goodput", instance): re.sub(r"[0-9+]+x", "0.9x", productive),
        _told_by("lockstep_run_gpu_hours", instance): gpu_hours,
    }


CASES = (
    Case("LockstepNobodyLeads", "a standby alone is left", {"lockstep_leader": "1 0x9"}, 5, "No operator leads."),
    Case("LockstepNobodyLeads", "nothing is scraped", {"up": "0x9"}, 5, "No operator leads."),
    Case("LockstepNobodyLeads", "another one takes over", {"lockstep_leader": "1 0x1 1x9"}, 5),
    Case(
        "LockstepTwoLead",
        "two clusters are in one Prometheus",
        {'lockstep_leader{instance="a"}': "1x9", 'lockstep_leader{instance="b"}': "1x9"},
        4,
        "2 operators say that they lead.",
    ),
    Case(
        "LockstepTwoLead",
        "one of two replicas leads",
        {'lockstep_leader{instance="a"}': "1x9", 'lockstep_leader{instance="b"}': "0x9"},
        4,
    ),
    Case(
        "LockstepNotActive",
        "a mode was left for a day",
        {'lockstep_mode{mode="NoNewAdmissions"}': "1x1500", 'lockstep_mode{mode="Active"}': "0x1500"},
        1441,
        "The operator has been in mode NoNewAdmissions for a day.",
        {"mode": "NoNewAdmissions"},
    ),
    Case("LockstepNotActive", "it is active", {'lockstep_mode{mode="Active"}': "1x1500"}, 1441),
    Case(
        "LockstepConfigurationUnreadable",
        "there is a mistake in it",
        {_told_by("lockstep_configuration_unreadable", each): "0 1x30" for each in "ab"},
        17,
        "The operator's configuration cannot be read.",
    ),
    Case(
        "LockstepConfigurationUnreadable",
        "an upgrade adds a field that pods which are about to go do not know",
        {_told_by("lockstep_configuration_unreadable", "a"): "0 1x9 _x30"},
        17,
    ),
    Case(
        "LockstepPassesFail",
        "passes have failed for long",
        {"lockstep_workqueue_failing": "2x20"},
        11,
        "Every pass over 2 keys fails: runs, arrays, or all of admission.",
    ),
    Case("LockstepPassesFail", "a pass failed once", {"lockstep_workqueue_failing": "2 0x20"}, 11),
    Case(
        "LockstepUndecidable",
        "nothing could be decided for some runs for long",
        {'lockstep_undecidable{kind="run"}': "2x9", 'lockstep_undecidable{kind="set"}': "0x9"},
        6,
        "The operator cannot decide about 2 of kind run.",
        {"kind": "run"},
    ),
    Case("LockstepUndecidable", "it was of the moment", {'lockstep_undecidable{kind="run"}': "2 0x9"}, 6),
    Case(
        "LockstepPassesLate",
        "the leader is late",
        {"lockstep_workqueue_oldest_due_seconds": "90x9", "lockstep_leader": "1x9"},
        6,
        "A run has waited 1m 30s to be looked at.",
    ),
    Case(
        "LockstepPassesLate",
        "a standby has keys that it does not look at",
        {"lockstep_workqueue_oldest_due_seconds": "90x9", "lockstep_leader": "0x9"},
        6,
    ),
    Case(
        "LockstepOverloaded",
        "the leader has been slow for long",
        {"lockstep_lag_allowance_seconds": "45x20", "lockstep_leader": "1x20"},
        11,
        "The operator or the API server is slow; deadlines are later by 45s.",
    ),
    Case(
        "LockstepOverloaded",
        "a launch was slow for a moment",
        {"lockstep_lag_allowance_seconds": "45x3 0x20", "lockstep_leader": "1x20"},
        11,
    ),
    Case(
        "LockstepWatchSilent",
        "a watch is stale",
        {'lockstep_informer_last_heard_seconds{informer="nodes"}': "0+60x9"},
        7,
        "Nothing was heard about nodes for 7m 0s.",
        {"informer": "nodes"},
    ),
    Case(
        "LockstepWatchSilent",
        "bookmarks come",
        {'lockstep_informer_last_heard_seconds{informer="nodes"}': "50x9"},
        7,
    ),
    Case(
        "LockstepMayNot",
        "a right is missing",
        {'lockstep_api_requests_total{verb="patch",resource="nodes",code="403"}': "0+1x40"},
        35,
        "The API server does not let the operator patch nodes.",
        {"verb": "patch", "resource": "nodes"},
    ),
    Case(
        "LockstepMayNot",
        "a namespace refuses the pods of a gang that launches",
        {
            'lockstep_api_requests_total{verb="create",resource="pods",code="403"}': "0+1x40",
            'lockstep_api_requests_total{verb="create",resource="pods",code="201"}': "0+40x40",
        },
        35,
        "The API server does not let the operator create pods.",
        {"verb": "create", "resource": "pods"},
    ),
    Case(
        "LockstepMayNot",
        "a user's run would be refused, and is tried once a minute",
        {'lockstep_api_requests_total{verb="try",resource="pods",code="403"}': "0+1x40"},
        35,
    ),
    Case(
        "LockstepMayNot",
        "the right was given",
        {'lockstep_api_requests_total{verb="patch",resource="nodes",code="403"}': "0+1x5 5x40"},
        35,
    ),
    Case(
        "LockstepApiServerErrors",
        "one in ten requests fails",
        requests("0+6x20", "0+54x20"),
        18,
        "10% of the requests to the API server fail.",
    ),
    Case("LockstepApiServerErrors", "one in a hundred fails", requests("0+6x20", "0+594x20"), 18),
    Case(
        "LockstepWorkersRefused",
        "workers are refused all the time",
        {'lockstep_worker_api_requests_total{endpoint="/v1/report",code="401"}': "0+3x20"},
        18,
        "100% of what workers send is refused with 401.",
        {"code": "401"},
    ),
    Case(
        "LockstepWorkersRefused",
        "those of a node that was replaced were",
        {'lockstep_worker_api_requests_total{endpoint="/v1/report",code="403"}': "0+3x2 6x20"},
        18,
    ),
    Case(
        "LockstepWorkersRefused",
        "pods of a large cluster are replaced all the time",
        {
            'lockstep_worker_api_requests_total{endpoint="/v1/report",code="401"}': "0+6x30",
            'lockstep_worker_api_requests_total{endpoint="/v1/report",code="200"}': "0+4800x30",
        },
        25,
    ),
    Case(
        "LockstepHistoryLost",
        "records are dropped",
        {"lockstep_history_dropped_total": "0x5 4x20"},
        10,
        "Records of history were not written.",
    ),
    Case("LockstepHistoryLost", "none is", {"lockstep_history_dropped_total": "4x20"}, 10),
    Case(
        "LockstepBreakerOpen",
        "a rack has lost its power",
        {"lockstep_breaker_open": "0 1x9"},
        3,
        "So many nodes are lost together that none is replaced.",
    ),
    Case("LockstepBreakerOpen", "it was over at once", {"lockstep_breaker_open": "0 1 0x9"}, 3),
    Case(
        "LockstepNodeFlaps",
        "a node comes and goes",
        {'lockstep_node_flaps{node="gpu-7"}': "_ 2 3 4x9"},
        5,
        "gpu-7 turned NotReady 4 times within an hour.",
        {"node": "gpu-7"},
    ),
    Case("LockstepNodeFlaps", "it did so twice", {'lockstep_node_flaps{node="gpu-7"}': "2x9"}, 5),
    Case(
        "LockstepNodesReplacedOften",
        "a dozen nodes are replaced",
        {"lockstep_nodes_replaced_total": "0+1x12 12x50"},
        59,
        "12 nodes were replaced within an hour.",
    ),
    Case(
        "LockstepNodesReplacedOften",
        "six before the leader changed, and six afterwards",
        {
            'lockstep_nodes_replaced_total{instance="a"}': "0x5 0+1x6 6x10 stale",
            'lockstep_nodes_replaced_total{instance="b"}': "0x25 0+1x6 6x40",
        },
        55,
        "12 nodes were replaced within an hour.",
    ),
    Case("LockstepNodesReplacedOften", "one is now and then", {"lockstep_nodes_replaced_total": "0x30 1x60"}, 59),
    Case(
        "LockstepRunSilent",
        "a worker is not heard",
        {f"lockstep_run_report_age_seconds{RUN}": "5 60+60x9"},
        8,
        "A worker of team/llama was last heard 8m 0s ago.",
        RUN_LABELS,
    ),
    Case("LockstepRunSilent", "all are heard", {f"lockstep_run_report_age_seconds{RUN}": "15x9"}, 8),
    Case(
        "LockstepBarrierWaits",
        "one node's image does not come",
        {f"lockstep_run_barrier_wait_seconds{RUN}": "0+60x40"},
        25,
        "team/llama has had its nodes for 25m 0s and is not complete.",
        RUN_LABELS,
    ),
    Case(
        "LockstepBarrierWaits",
        "it is complete after a quarter of an hour",
        {f"lockstep_run_barrier_wait_seconds{RUN}": "0+60x17 0x40"},
        25,
    ),
    Case(
        "LockstepRunStalled",
        "steps of a second stop",
        {f"lockstep_run_step_age_seconds{RUN}": "1 1+60x40", f"lockstep_run_step_interval_seconds{RUN}": "2x40"},
        15,
        "team/llama has made no step for 14m 1s.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunStalled",
        "steps stop and their pace is not known",
        {f"lockstep_run_step_age_seconds{RUN}": "0+60x90"},
        70,
        "team/llama has made no step for 1h 10m 0s.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunStalled",
        "a step takes minutes",
        {f"lockstep_run_step_age_seconds{RUN}": "0+60x40", f"lockstep_run_step_interval_seconds{RUN}": "300x40"},
        15,
    ),
    Case(
        "LockstepNoFirstStep",
        "nothing comes after START",
        {f"lockstep_run_init_seconds{RUN}": "0+60x90"},
        61,
        "team/llama started 1h 1m 0s ago and has reported no step.",
        RUN_LABELS,
    ),
    Case("LockstepNoFirstStep", "the first step came", {f"lockstep_run_init_seconds{RUN}": "0+60x50 0x60"}, 61),
    Case(
        "LockstepNothingSaved",
        "three saves were due",
        {
            f"lockstep_run_unsaved_seconds{RUN}": "0+60x90",
            f"lockstep_run_checkpoint_interval_seconds{RUN}": "600x90",
        },
        40,
        "team/llama has trained 40m 0s since its newest valid checkpoint.",
        RUN_LABELS,
    ),
    Case(
        "LockstepNothingSaved",
        "the program saves by itself, and has not for hours",
        {f"lockstep_run_unsaved_seconds{RUN}": "0+60x300"},
        190,
        "team/llama has trained 3h 10m 0s since its newest valid checkpoint.",
        RUN_LABELS,
    ),
    Case(
        "LockstepNothingSaved",
        "a save is due every two hours",
        {
            f"lockstep_run_unsaved_seconds{RUN}": "0+60x300",
            f"lockstep_run_checkpoint_interval_seconds{RUN}": "7200x300",
        },
        190,
    ),
    Case(
        "LockstepRunDiverges",
        "the loss has jumped",
        {'lockstep_run_condition{namespace="team",run="llama",type="Diverging",reason="LossSpike"}': "1x9"},
        2,
        "The loss of team/llama has jumped, or it was rolled back again and again.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunDiverges",
        "a roll-back did not help",
        {f"lockstep_run_roll_backs{RUN}": "0 1 2x9"},
        4,
        "The loss of team/llama has jumped, or it was rolled back again and again.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunDiverges",
        "a roll-back helped, and a rank is slow",
        {
            f"lockstep_run_roll_backs{RUN}": "0 1 0x9",
            'lockstep_run_condition{namespace="team",run="llama",type="Straggling",reason="SlowRank"}': "1x9",
        },
        4,
    ),
    Case(
        "LockstepRunFailsOften",
        "it fails every half hour",
        {f"lockstep_run_failures{RUN}": " ".join(f"{n}x29" for n in range(13)), f"lockstep_run_attempt{RUN}": "1x400"},
        360,
        "team/llama failed 12 times in six hours.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunFailsOften",
        "half of it under another leader",
        {
            _told_by("lockstep_run_failures", "a"): "0x29 1x29 2x29 3x29 4x29 stale",
            _told_by("lockstep_run_failures", "b"): "_x150 4x29 5x29 6x29 7x29 8x90",
            _told_by("lockstep_run_attempt", "b"): "_x150 1x250",
        },
        340,
        "team/llama failed 8 times in six hours.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunFailsOften",
        "it did, and is over",
        {
            f"lockstep_run_failures{RUN}": " ".join(f"{n}x9" for n in range(13)) + " stale",
            f"lockstep_run_attempt{RUN}": "1x130 stale",
        },
        200,
    ),
    Case(
        "LockstepRunFailsOften",
        "it fails twice a day",
        {f"lockstep_run_failures{RUN}": "0x200 1x300", f"lockstep_run_attempt{RUN}": "1x400"},
        360,
    ),
    Case(
        "LockstepRestartStorm",
        "nodes are lost one after the other",
        ended("NodeLost", "0+4x20"),
        15,
        "60 attempts failed within a quarter of an hour, of all runs together.",
    ),
    Case(
        "LockstepRestartStorm",
        "hardware fails everywhere between two scrapes",
        ended("Hardware", "0x5 30x15"),
        10,
        "30 attempts failed within a quarter of an hour, of all runs together.",
    ),
    Case("LockstepRestartStorm", "the command of an array is misspelt", ended("Application", "0x5 64x15"), 10),
    Case("LockstepRestartStorm", "the image of an array is misspelt", ended("Storage", "0x5 64x15"), 10),
    Case(
        "LockstepManyFailures",
        "the command of an array is misspelt",
        ended("Application", "0x5 64x15"),
        10,
        "64 attempts failed within a quarter of an hour, of all runs together.",
    ),
    Case(
        "LockstepManyFailures",
        "many hang or fail without a word",
        {**ended("Hang", "0+2x20"), **ended("Unknown", "0+2x20"), **ended("Deterministic", "0+1x20")},
        15,
        "75 attempts failed within a quarter of an hour, of all runs together.",
    ),
    Case(
        "LockstepManyFailures",
        "the image of an array is misspelt, or nobody can read a file system",
        {**ended("Storage", "0+2x20"), **ended("CorruptCheckpoint", "0+2x20")},
        15,
        "60 attempts failed within a quarter of an hour, of all runs together.",
    ),
    Case("LockstepManyFailures", "the storm is another alert", ended("NodeLost", "0+4x20"), 15),
    Case("LockstepManyFailures", "many models diverge", ended("NaN", "0+4x20"), 15),
    Case("LockstepManyFailures", "many runs come to their end", ended("Succeeded", "0+4x20"), 15),
    Case(
        "LockstepManyFailures",
        "many runs make room, are resized, moved or cancelled",
        {k: v for cause in ("Preempted", "Resized", "Drained", "Cancelled") for k, v in ended(cause, "0+4x20").items()},
        15,
    ),
    Case("LockstepRestartStorm", "one run loses a node now and then", ended("NodeLost", "0x5 1x5 2x9"), 15),
    Case(
        "LockstepRunGoodputLow",
        "a run of a month trains half of the time of late",
        spent("2500000+59x100 2505930+30x400", "40000+1x100 40130+30x400"),
        400,
        "team/llama has trained 57.94% of the time it had nodes, of the last six hours.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunGoodputLow",
        "another operator leads since",
        spent("0+30x150 stale", "0+30x150 stale", "a") | spent("_x151 4530+30x250", "_x151 4530+30x250", "b"),
        300,
        "team/llama has trained 50% of the time it had nodes, of the last six hours.",
        RUN_LABELS,
    ),
    Case(
        "LockstepRunGoodputLow",
        "all that it has trained is lost",
        spent("20000+60x30 0x400", "1000x30 22800+60x400"),
        200,
        "team/llama has trained 0% of the time it had nodes, of the last six hours.",
        RUN_LABELS,
    ),
    Case("LockstepRunGoodputLow", "it lost its first day", spent("0+60x500", "86400x500"), 400),
    Case("LockstepRunGoodputLow", "it has just begun", spent("0x20 0+60x200", "0+60x20 1200x200"), 150),
    Case(
        "LockstepRunGoodputLow",
        "it is new under the name of one before",
        spent("7200x9 0+50x400", "9x9 0+10x400", gpu_hours="9x9 0+1x400"),
        200,
    ),
    Case(
        "LockstepRunGoodputLow",
        "it waited for nodes",
        {**spent("0x300 0+60x200", "0x500"), f'lockstep_run_seconds{{bucket="queue",{RUN[1:]}': "0+60x300 18000x200"},
        400,
    ),
    Case(
        "LockstepRunGoodputLow",
        "it reports no steps",
        {name: values for name, values in spent("0x400", "0+60x400").items() if "seconds" in name},
        300,
    ),
    Case(
        "LockstepQueueMissing",
        "a queue is misspelt",
        {'lockstep_pending_runs{queue="",reason="QueueNotFound"}': "2x40"},
        31,
        "2 runs wait for a queue that does not exist.",
    ),
    Case("LockstepQueueMissing", "a spec cannot be read", {'lockstep_pending_runs{queue="",reason="New"}': "2x40"}, 31),
    Case("LockstepQueueMissing", "runs wait", {'lockstep_pending_runs{queue="research",reason="Quota"}': "2x40"}, 31),
    Case(
        "LockstepEstimateDrifts",
        "the start moves on and on",
        {'lockstep_queue_estimate_drift_seconds{queue="research"}': "0+600x90"},
        60,
        "A run in queue research is to start 10h 0m 0s later than it was first told.",
        {"queue": "research"},
    ),
    Case(
        "LockstepEstimateDrifts",
        "it is a few minutes late",
        {'lockstep_queue_estimate_drift_seconds{queue="research"}': "600x90"},
        60,
    ),
)
