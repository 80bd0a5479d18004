"""A run has an autoscaler asked for nodes, and what was made for it taken away: whatever is there already."""

from dataclasses import replace
from time import process_time
from typing import Any, Literal

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ScaleUpStatus
from lockstep.core.decide import decide
from lockstep.core.model.conditions import find, with_condition
from lockstep.core.model.plan import DeleteProvisioning, EnsureProvisioning
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason, ConditionType
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import PlaceholderView, PodPhase, ProvisioningState, ProvisioningView, RefusedCreate
from lockstep.core.pods.requirement import wish_hash
from lockstep.core.run.scale_up import LOOK_AGAIN, PLACE_AGAIN, UNHEARD, follow_scale_up
from support.world import World, spec, world, world_with_gang

NAME = "one-uid-o-scale-up"
By = Literal["Placeholders", "ProvisioningRequest"]


def asking(by: By = "Placeholders", nodes: int = 2, **fields: Any) -> World:
    """A run that waits, and asks for ``nodes``."""
    w = world(1)
    w.queue("default", scaleUp="Enabled")
    w.apply("one", spec(2, gpusPerNode=8))
    w.amend("one", scale_up=ScaleUpStatus(by=by, nodes=nodes, generation=1, since=w.now, **fields))
    accepted = with_condition(
        w.status("one"), ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "", now=w.now, generation=1
    )
    w.amend("one", conditions=accepted.conditions)
    w.tunables = replace(w.tunables, scale_up=ScaleUpSettings(provisioning_requests=True, served=True))
    return w


def plan(w: World, **seen: Any) -> PlanBuilder:
    found = PlanBuilder(RunContext(replace(w.snapshot("one"), **seen), w.tunables, w.now))
    follow_scale_up(found)
    return found


def pod(number: int, **changes: Any) -> PlaceholderView:
    name = f"{NAME}-{number}"
    return replace(PlaceholderView("default", name, name, "uid-one"), **changes)


def there(w: World) -> tuple[PlaceholderView, ...]:
    namespace, uid = w.runs["one"].namespace, w.runs["one"].uid
    return tuple(pod(number, namespace=namespace, run_uid=uid) for number in range(2))


def told(found: PlanBuilder) -> tuple[str, str, str]:
    condition = find(found.status, ConditionType.SCALE_UP)
    return ("", "", "") if condition is None else (condition.status, condition.reason, condition.message)


class TestPlaceholders:
    def test_what_is_missing_is_made_and_no_more(self) -> None:
        w = asking()
        assert [each.name for each in plan(w).placeholders] == [f"{NAME}-0", f"{NAME}-1"]
        found = plan(w, placeholders=there(w)[:1])
        assert [each.name for each in found.placeholders] == [f"{NAME}-1"]
        found = plan(w, placeholders=there(w))
        assert not found.placeholders
        assert not found.deletes
        assert told(found)[:2] == ("True", "PlaceholdersWait")

    def test_how_many_have_a_node_is_told(self) -> None:
        w = asking()
        first, second = there(w)
        assert (
            "2 placeholder pods, of which 1 have one"
            in told(plan(w, placeholders=(replace(first, node="n0"), second)))[2]
        )

    @pytest.mark.parametrize("left", [{"annotations": {"lockstep.dev/paused": "true"}}, {"spec_error": "spec.env: no"}])
    def test_a_run_that_is_left_alone_asks_for_nothing_any_more(self, left: dict[str, Any]) -> None:
        w = asking()
        w.runs["one"] = replace(w.runs["one"], **left)
        found = decide(replace(w.snapshot("one"), placeholders=there(w)), w.tunables, w.now)
        assert [each.name for each in found.deletes] == [f"{NAME}-0", f"{NAME}-1"]
        gone = decide(w.snapshot("one"), w.tunables, w.now).status
        assert gone is not None
        assert gone.scale_up is None

    def test_one_that_has_ended_or_is_ending_is_made_again_once_it_is_gone(self) -> None:
        w = asking()
        first, second = there(w)
        found = plan(w, placeholders=(replace(first, terminal=True), replace(second, deleting=True)))
        assert [each.name for each in found.deletes] == [first.name]
        assert not found.placeholders

    @pytest.mark.parametrize(
        "why", ["gang", "suspended", "cancelled", "deleted", "queue disabled", "no queue", "taken back", "edited"]
    )
    def test_all_go_when_it_no_longer_asks_and_then_status_forgets_it(self, why: str) -> None:
        w = asking()
        run = w.runs["one"]
        if why == "gang":
            assigned = world_with_gang(2).status("one").assignment
            w.amend("one", assignment=assigned)
        elif why in ("suspended", "cancelled"):
            field = {"suspended": "suspend", "cancelled": "cancel"}[why]
            w.runs["one"] = replace(run, spec=changed(spec(2, gpusPerNode=8), **{field: True}))
        elif why == "deleted":
            w.runs["one"] = replace(run, deleting=True)
        elif why == "queue disabled":
            w.queue("default")
        elif why == "no queue":
            w.queues.clear()
        elif why == "taken back":
            w.amend("one", scale_up=changed(run.status.scale_up or ScaleUpStatus(by="Placeholders"), nodes=0))
        else:
            w.runs["one"] = replace(run, generation=2)
        found = plan(w, placeholders=there(w))
        assert {each.name for each in found.deletes} == {f"{NAME}-0", f"{NAME}-1"}
        assert not found.placeholders
        assert found.status.scale_up is not None, "it is not forgotten before it is gone"
        found = plan(w)
        assert found.status.scale_up is None
        assert found.admission_changed, "it may ask for something else now"
        assert told(found)[0] == ""

    @pytest.mark.parametrize(
        ("change", "accepted", "stays"),
        [
            ({"nice": 5}, True, True),
            ({"nice": 5}, False, False),
            ({"nice": 5}, None, False),
            ({"nodes": 3}, True, False),
            ({"resources_per_node": {"cpu": "8"}}, True, False),
        ],
    )
    def test_they_stay_when_the_run_is_edited_and_wants_the_same_nodes(
        self, change: dict[str, Any], accepted: bool | None, stays: bool
    ) -> None:
        wanted = spec(2, gpusPerNode=8)
        w = asking(wish=wish_hash(wanted))
        told = with_condition(
            w.status("one"), ConditionType.ACCEPTED, accepted, ConditionReason.ACCEPTED, "", now=w.now, generation=1
        )
        w.amend("one", conditions=told.conditions)
        w.runs["one"] = replace(w.runs["one"], generation=2, spec=changed(wanted, **change))
        assert (not plan(w, placeholders=there(w)).deletes) is stays

    def test_those_that_status_knows_nothing_of_go_too(self) -> None:
        w = asking()
        w.amend("one", scale_up=None)
        assert len(plan(w, placeholders=there(w)).deletes) == 2

    def test_the_gang_that_gets_a_node_has_the_placeholder_of_another_run_taken_off_it(self) -> None:
        w = world_with_gang(2)
        stranger = PlaceholderView("elsewhere", "x-scale-up-0", "p9", "uid-x", node="n0")
        waits = replace(stranger, uid="p8", node="")
        gone = plan(w, placeholders=(stranger, waits)).deletes
        assert [(each.namespace, each.uid, each.grace) for each in gone] == [
            ("elsewhere", "p9", 1),
            ("elsewhere", "p8", 1),
        ]

    def test_one_that_has_gone_is_made_again_once_whoever_took_its_node_is_there(self) -> None:
        w = asking()
        gone_at = w.now - PLACE_AGAIN + 1
        found = plan(w, placeholders=there(w)[:1], placeholder_gone_at=gone_at)
        assert not found.placeholders
        assert found.build().wake_at == w.now + 1
        w.now += 1
        assert len(plan(w, placeholders=there(w)[:1], placeholder_gone_at=gone_at).placeholders) == 1

    def test_of_very_many_each_is_looked_at_once(self) -> None:
        w = asking(nodes=10_000)
        one = replace(pod(0), namespace=w.runs["one"].namespace, run_uid=w.runs["one"].uid)
        names = [f"{NAME}-{number}" for number in range(10_000)]
        many = tuple(replace(one, name=name, uid=name) for name in names)
        begun = process_time()
        assert not plan(w, placeholders=many).deletes
        w.queue("default")
        assert len(plan(w, placeholders=many).deletes) == 10_000
        assert process_time() - begun < 2, "linear, on whatever machine"

    def test_a_refusal_is_told(self) -> None:
        w = asking()
        found = plan(w, refused_creates={f"{NAME}-0": RefusedCreate(w.now, "exceeded quota: gpus")})
        assert told(found) == ("False", "ScaleUpRefused", "a placeholder pod is not made: exceeded quota: gpus")


def seen(w: World, state: str = "", message: str = "", attempt: int = 1, **more: Any) -> ProvisioningView:
    return ProvisioningView("r1", True, attempt, ProvisioningState(state) if state else None, message, **more)


class TestProvisioningRequests:
    def test_nothing_is_done_before_it_was_read(self) -> None:
        w = asking("ProvisioningRequest")
        found = plan(w)
        assert found.provisioning is None
        assert found.status.scale_up is not None

    def test_it_is_made_where_there_is_none_and_no_pod_beside_it(self) -> None:
        w = asking("ProvisioningRequest", provisioning_class="c")
        found = plan(w, provisioning=ProvisioningView())
        assert isinstance(found.provisioning, EnsureProvisioning)
        assert found.provisioning.body["spec"]["podSets"][0]["count"] == 2
        assert not found.placeholders
        assert told(found)[:2] == ("True", "ProvisioningRequested")

    @pytest.mark.parametrize(
        ("state", "reason"),
        [("", "ProvisioningRequested"), ("Accepted", "ProvisioningAccepted"), ("Provisioned", "NodesProvisioned")],
    )
    def test_what_the_autoscaler_says_is_told(self, state: str, reason: str) -> None:
        w = asking("ProvisioningRequest")
        found = plan(w, provisioning=seen(w, state, "in zone b" if state else ""))
        assert found.provisioning is None
        assert told(found)[:2] == ("True", reason)
        assert ("in zone b" in told(found)[2]) is bool(state)
        assert found.build().wake_at == w.now + LOOK_AGAIN

    def test_silence_is_told_with_what_may_be_missing(self) -> None:
        w = asking("ProvisioningRequest", provisioning_class="c")
        w.now += UNHEARD - 1
        assert "no autoscaler" not in told(plan(w, provisioning=seen(w)))[2]
        w.now += 1
        assert "no autoscaler has said anything" in told(plan(w, provisioning=seen(w)))[2]

    @pytest.mark.parametrize("state", ["Failed", "CapacityRevoked", "BookingExpired"])
    @pytest.mark.parametrize(("attempt", "pause"), [(1, 60), (2, 120), (5, 960), (6, 1800), (400, 1800)])
    def test_one_that_failed_is_deleted_and_another_follows_after_ever_longer(
        self, state: str, attempt: int, pause: int
    ) -> None:
        w = asking("ProvisioningRequest", attempt=attempt)
        found = plan(w, provisioning=seen(w, state, "out of H100s", attempt))
        assert isinstance(found.provisioning, DeleteProvisioning)
        assert told(found)[:2] == ("False", "ProvisioningFailed")
        assert "out of H100s" in told(found)[2]
        asked = found.status.scale_up
        assert asked is not None
        assert asked.retry_at == w.now + pause
        w.amend("one", scale_up=asked)
        still = plan(w, provisioning=seen(w, state, "", attempt))
        assert isinstance(still.provisioning, DeleteProvisioning)
        assert still.status.scale_up == asked, "one failure counts once"
        assert plan(w, provisioning=ProvisioningView()).provisioning is None
        w.now += pause
        again = plan(w, provisioning=ProvisioningView())
        assert isinstance(again.provisioning, EnsureProvisioning)
        assert again.status.scale_up == changed(asked, attempt=attempt + 1, retry_at=None)

    def test_one_of_an_earlier_attempt_goes_first(self) -> None:
        w = asking("ProvisioningRequest", attempt=2)
        for state in ("Failed", "Accepted", ""):
            found = plan(w, provisioning=seen(w, state, attempt=1))
            assert isinstance(found.provisioning, DeleteProvisioning)
            assert found.status.scale_up == w.status("one").scale_up

    def test_one_that_is_not_of_the_run_is_left_alone_and_told(self) -> None:
        w = asking("ProvisioningRequest")
        found = plan(w, provisioning=ProvisioningView("r9", is_own=False))
        assert found.provisioning is None
        assert told(found)[:2] == ("False", "ScaleUpRefused")

    def test_what_cannot_be_read_is_no_evidence(self) -> None:
        w = asking("ProvisioningRequest")
        found = plan(w, provisioning=ProvisioningView(problem="may not"))
        assert found.provisioning is None
        assert told(found)[:2] == ("Unknown", "ScaleUpRefused")
        w.queue("default")
        assert plan(w, provisioning=ProvisioningView(problem="may not")).status.scale_up is not None

    def test_it_stays_until_the_pods_of_the_gang_are_on_the_nodes(self) -> None:
        w = asking("ProvisioningRequest")
        gang = world_with_gang(2)
        w.amend("one", assignment=gang.status("one").assignment, attempt=1)
        w.pods = dict(gang.pods)
        unbound = {uid: replace(each, bound=False, phase=PodPhase.PENDING) for uid, each in gang.pods.items()}
        w.pods = unbound
        assert plan(w, provisioning=seen(w, "Provisioned")).provisioning is None
        w.pods = {uid: replace(each, bound=True) for uid, each in unbound.items()}
        assert isinstance(plan(w, provisioning=seen(w, "Provisioned")).provisioning, DeleteProvisioning)
        assert plan(w, provisioning=ProvisioningView()).status.scale_up is None

    def test_it_goes_when_it_is_no_longer_wanted(self) -> None:
        w = asking("ProvisioningRequest", nodes=0)
        assert isinstance(plan(w, provisioning=seen(w, "Accepted")).provisioning, DeleteProvisioning)
        assert plan(w, provisioning=ProvisioningView()).status.scale_up is None

    @pytest.mark.parametrize("settings", [{"provisioning_requests": True}, {"served": True}], ids=["served", "allowed"])
    def test_where_they_are_no_longer_served_or_allowed_the_run_asks_in_the_other_way(
        self, settings: dict[str, bool]
    ) -> None:
        w = asking("ProvisioningRequest")
        w.tunables = replace(w.tunables, scale_up=ScaleUpSettings(**settings))
        found = plan(w, provisioning=ProvisioningView())
        assert found.status.scale_up is None
        assert found.admission_changed

    def test_a_refusal_is_told(self) -> None:
        w = asking("ProvisioningRequest")
        refused = {NAME: RefusedCreate(w.now, "may not create")}
        found = plan(w, provisioning=ProvisioningView(), refused_creates=refused)
        assert isinstance(found.provisioning, EnsureProvisioning), "and tried again"
        assert told(found)[1] == "ScaleUpRefused"


def test_that_it_cannot_ask_is_said_while_it_waits() -> None:
    w = asking()
    reason = ConditionReason.CANNOT_ASK_FOR_NODES
    status = with_condition(
        changed(w.status("one"), scale_up=None), ConditionType.SCALE_UP, False, reason, "why", now=w.now, generation=1
    )
    w.amend("one", scale_up=None, conditions=status.conditions)
    assert told(plan(w))[1] == reason
    w.queue("default")
    assert told(plan(w))[1] == ""
