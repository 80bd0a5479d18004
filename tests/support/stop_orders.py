"""A gang that trains, what puts it on hold, and all that may stop it."""

from dataclasses import replace
from typing import Any

from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import PodPhase, PodView
from support.made_once import made_once
from support.world import World, node, spec

AT_ONCE = {"withinQueue": "LowerPriority", "minRuntime": "0s"}
CLASS = {"priorityClassName": "low"}


@made_once
def training() -> World:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)})
    w.classes = {"low": 10, "high": 1000}
    w.queue(preemption=AT_ONCE)
    w.apply("one", spec(2, **CLASS))
    w.settle()
    w.train("one", 5)
    w.tell_of_save("one", 5)
    w.pass_time(20, step=10)
    assert phase(w) is Phase.RUNNING
    return w


def phase(w: World) -> Phase:
    view = w.runs["one"]
    return phase_of(view.status, view.spec is not None and view.spec.suspend)


def is_held(w: World) -> bool:
    return is_true(w.status("one"), ConditionType.STATE_REGRESSION)


def forged(w: World, **changes: Any) -> PodView:
    """A pod in the name of the gang, which kube-scheduler has bound to a node that is none of ours."""
    first = next(iter(w.pods.values()))
    fields: dict[str, Any] = {
        "name": "one-uid-o-0-99",
        "uid": "forged",
        "incarnation": 99,
        "node": "elsewhere",
        "bound": True,
        "phase": PodPhase.PENDING,
        "started_at": None,
    }
    return replace(first, **{**fields, **changes})


def a_bound_pod_that_never_reports(w: World) -> None:
    pod = forged(w)
    w.pods[pod.name] = pod


def a_pod_with_a_copied_annotation(w: World) -> None:
    pod = forged(w, bound=False)
    w.pods[pod.name] = pod


def a_status_that_is_gone_with_a_pod(w: World) -> None:
    w.wipe_status("one")
    gone = next(pod for pod in w.pods.values() if pod.slot == 1)
    del w.pods[gone.name], w.workers[gone.uid]


DOUBTS = [a_bound_pod_that_never_reports, a_pod_with_a_copied_annotation, a_status_that_is_gone_with_a_pod]


def suspend(w: World) -> None:
    w.apply("one", spec(2, suspend=True, **CLASS))


def cancel(w: World) -> None:
    w.apply("one", spec(2, cancel=True, **CLASS))


def drain(w: World) -> None:
    w.queue(stopPolicy="HoldAndDrain")


def ask_to_queue_again(w: World) -> None:
    w.annotate("one", requeue_request="now")


def limit(w: World) -> None:
    w.apply("one", spec(2, timeLimit="10s", **CLASS))


def spend(w: World) -> None:
    w.apply("one", spec(2, budget={"gpuHours": 1, "action": "Stop"}, **CLASS))  # of sixteen GPUs: four minutes


def preempt(w: World) -> None:
    w.apply("urgent", spec(2, priorityClassName="high"))


ORDERS = [suspend, cancel, drain, ask_to_queue_again, limit, spend, preempt]


def let_forged_pods_end(w: World) -> None:
    """As the kubelet of a node that is not in this world does."""
    for name in [name for name, pod in w.pods.items() if pod.uid == "forged" and pod.deleting]:
        del w.pods[name]


def stopped(w: World, seconds: float) -> bool:
    """Its pods of before are gone, and its nodes given back."""
    before = {pod.uid for pod in w.pods.values() if pod.run == "one"}
    for _ in range(int(seconds / 10)):
        w.pass_time(10, step=5)
        let_forged_pods_end(w)
        if not before & {pod.uid for pod in w.pods.values() if not pod.is_terminal}:
            return True
    return False
