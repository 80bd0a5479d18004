"""Random lives of gangs that ask an autoscaler for nodes, of operators that die: what always holds, and how it ends."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DeleteProvisioning, EnsureProvisioning, Plan
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import PlaceholderView, PodView, ProvisioningState, ProvisioningView, RunSnapshot
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.placeholders import is_placeholder_of
from support.examples import examples
from support.world import World, node, phase, spec

SIZES = {"large": 3, "small": 1}
MOST = 4


@dataclass
class Autoscaled(World):
    """With what asks for nodes, a scheduler that places it, and an autoscaler that is moved by hand."""

    places: dict[str, PlaceholderView] = field(default_factory=dict)
    requests: dict[str, ProvisioningView] = field(default_factory=dict)
    """By run."""
    gone_at: dict[str, float] = field(default_factory=dict)

    def snapshot(self, name: str) -> RunSnapshot:
        run, found = self.runs[name], super().snapshot(name)
        held = frozenset(run.status.assignment.nodes)
        by_uid = {each.uid: each for each in self.runs.values()}
        others = [each for each in self.places.values() if each.run_uid != run.uid]
        uids = {each.run_uid for each in others if each.node in held}
        in_the_way = [each for each in others if each.run_uid in uids and (not each.node or each.node in held)]
        vouched = [each for each in in_the_way if is_placeholder_of(each, by_uid.get(each.run_uid))]
        seen = (*(each for each in self.places.values() if each.run_uid == run.uid), *vouched)
        asked = run.status.scale_up
        by_request = asked is not None and asked.by == "ProvisioningRequest"
        request = self.requests.get(name, ProvisioningView()) if by_request else None
        gone_at = self.gone_at.get(run.uid, 0.0)
        return replace(found, placeholders=seen, placeholder_gone_at=gone_at, provisioning=request)

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        super()._execute(name, plan, crash_after)
        if crash_after is not None and (plan.status is None or crash_after == 0):
            return  # it died before
        for gone in plan.deletes:
            known = self.places.get(gone.name)
            if known is not None and known.uid == gone.uid:
                self.remove(gone.name)
        uid = self.runs[name].uid
        for new in plan.placeholders[:crash_after]:  # it may die between two of them
            if new.name not in self.places:
                self.version += 1
                self.places[new.name] = PlaceholderView("ns", new.name, f"place-{self.version}", uid)
        if isinstance(plan.provisioning, DeleteProvisioning):
            self.version += self.requests.pop(name, None) is not None
        elif isinstance(plan.provisioning, EnsureProvisioning) and name not in self.requests:
            self.version += 1
            attempt = int(plan.provisioning.body["metadata"]["annotations"]["lockstep.dev/scale-up"])
            self.requests[name] = ProvisioningView(f"request-{self.version}", True, attempt)

    def remove(self, name: str) -> None:
        """Of a placeholder nothing is left."""
        place = self.places.pop(name, None)
        if place is not None:
            self.gone_at[place.run_uid] = self.now
            self.version += 1

    def kubelets(self) -> None:
        """Placeholders are there before the pods of gangs, which kube-scheduler has to try again."""
        for name, place in self.places.items():
            if not place.node and (free := [each for each in self.nodes if self._is_free(each)]):
                self.places[name] = replace(place, node=free[0])
                self.version += 1
        super().kubelets()

    def _is_free(self, node_name: str) -> bool:
        gang = any(pod.node == node_name and not pod.is_terminal for pod in self.pods.values())
        return not gang and all(place.node != node_name for place in self.places.values())

    def _mutex_held(self, pod: PodView) -> bool:
        return super()._mutex_held(pod) or any(place.node == pod.node for place in self.places.values())

    def make_nodes(self, count: int) -> None:
        """They join the cluster."""
        for number in range(len(self.nodes), len(self.nodes) + count):
            self.nodes[f"n{number}"] = node(f"n{number}")
        self.version += 1

    def autoscale(self) -> None:
        """Give everybody who asks what they ask for."""
        self.make_nodes(sum(not place.node for place in self.places.values()))
        for name, request in self.requests.items():
            asked = self.status(name).scale_up
            if request.state is None and asked is not None:
                self.make_nodes(asked.nodes)
                self.requests[name] = replace(request, state=ProvisioningState.PROVISIONED)

    def check(self) -> None:
        """What holds whenever everybody has acted."""
        for name, run in self.runs.items():
            own = [place for place in self.places.values() if place.run_uid == run.uid]
            asked, held = run.status.scale_up, set(run.status.assignment.nodes)
            assert not (own and name in self.requests), "both"
            assert len(own) <= (asked.nodes if asked is not None else 0)
            assert not held & {place.node for place in self.places.values()}, "a gang shares its node"
            if phase(self, name) is not Phase.PENDING:
                assert not own, "what it asked by outlives the wish"
            if phase(self, name) not in (Phase.PENDING, Phase.LAUNCHING):
                assert name not in self.requests
        asked_in_all = [run.status.scale_up.nodes for run in self.runs.values() if run.status.scale_up is not None]
        assert sum(asked_in_all) <= MOST


def autoscaled(*, by_request: bool) -> Autoscaled:
    up = ScaleUpSettings(provisioning_requests=by_request, served=by_request, max_nodes=MOST)
    w = Autoscaled({"n0": node("n0")}, tunables=Tunables(scale_up=up), classes={"lockstep-placeholder": -10})
    w.queue("default", scaleUp="Enabled")
    for name, size in SIZES.items():
        w.apply(name, spec(size, gpusPerNode=8))
    return w


def act(w: Autoscaled, what: str, name: str) -> None:
    run = w.runs[name]
    if what == "autoscale":
        w.autoscale()
    elif what == "fail" and name in w.requests:
        w.requests[name] = replace(w.requests[name], state=ProvisioningState.FAILED)
    elif what == "expire" and name in w.requests:
        w.requests[name] = replace(w.requests[name], state=ProvisioningState.BOOKING_EXPIRED)
    elif what == "evict":
        w.remove(next(iter(w.places), ""))
    elif what in ("suspend", "resume") and run.spec is not None:
        w.apply(name, changed(run.spec, suspend=what == "suspend"))
    elif what in ("disable", "enable"):
        w.queue("default", scaleUp="Enabled" if what == "enable" else "Disabled")
    elif what == "crash":
        w.admit(crash_after=1)
        w.reconcile(name, crash_after=1)
        w.crash()
    elif what == "die at once":
        w.reconcile(name, crash_after=0)
        w.crash()
    elif what == "wait":
        w.now += 61.0


EVENTS = (
    "autoscale",
    "fail",
    "expire",
    "evict",
    "suspend",
    "resume",
    "disable",
    "enable",
    "crash",
    "die at once",
    "wait",
)
ONTO_A_PLACEHOLDER = [("wait", "large"), ("suspend", "small"), ("resume", "small")]
HISTORY = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from([*SIZES])), max_size=14)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(by_request=st.booleans(), history=HISTORY)
@example(by_request=False, history=ONTO_A_PLACEHOLDER)
def test_nothing_is_asked_for_twice_or_outlives_the_wish_and_in_the_end_every_gang_trains(
    by_request: bool, history: list[tuple[str, str]]
) -> None:
    w = autoscaled(by_request=by_request)
    w.settle()
    w.check()
    for what, name in history:
        act(w, what, name)
        w.settle()
        w.check()
    w.queue("default", scaleUp="Enabled")
    for name, run in w.runs.items():
        if run.spec is not None and run.spec.suspend:
            w.apply(name, changed(run.spec, suspend=False))
    for _ in range(8):
        w.now += 2000.0 if by_request else 61.0
        w.settle()
        w.autoscale()
        w.settle()
        w.check()
    phases: dict[str, Any] = {name: phase(w, name) for name in w.runs}
    assert phases == dict.fromkeys(SIZES, Phase.RUNNING)
    assert not w.places
    assert not w.requests
    assert all(run.status.scale_up is None for run in w.runs.values())
    event(f"{len(w.nodes)} nodes")
