"""Admissions whose writes are under way while the next cycle decides: nothing is given twice, come what may."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_status import AdmissionStatus, QueueStatus, TrainingRunStatus
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, UnreachableError
from lockstep.controller.kube.workqueue import CLUSTER_KEY, run_key
from lockstep.controller.reconcile import threaded_admission
from lockstep.controller.reconcile.pace import WRITES_A_MINUTE, WRITES_AT_ONCE
from lockstep.controller.reconcile.queue_status_writer import AT_A_TIME, is_queue_status
from lockstep.core.admission.cache.ledger import Ledger
from lockstep.core.model.assignment import assigned
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.plan import ClusterPlan, Event, StatusWrite
from lockstep.core.model.reservation import reservation_of
from lockstep.core.model.snapshot import ClusterSnapshot, Leadership
from support.stored_runs import run, stored
from support.values import not_none
from unit.controller.reconcile.test_execute import World

LEADER = Leadership(since=0.0)
REFUSED = UnreachableError("connection refused")
PATIENCE = 20.0


class SlowWorld(World):
    """Writes are answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.written: list[dict[str, Any]] = []
        self.kube.patch_status = self._patch_status  # type: ignore[method-assign]
        self.queue.clear()

    async def _patch_status(self, _: Any, name: str, *__: Any, patch: dict[str, Any], **___: Any) -> bytes:
        self.kube.writes += 1
        await self.answers.wait()
        if self.kube.write is not None:
            raise self.kube.write
        self.written.append(patch)
        return orjson.dumps(self.named(name, 11 + len(self.written)) | {"status": patch})

    def named(self, name: str, version: int) -> dict[str, Any]:
        raw = run(version)
        uid = "u1" if name == "llama" else f"u-{name}"
        return raw | {"metadata": raw["metadata"] | {"name": name, "uid": uid}}

    def add(self, name: str) -> None:
        self.store.runs.apply(self.named(name, 10))
        self.queue.clear()

    def word(self, name: str = "llama", reason: str = "Priority") -> StatusWrite:
        view = not_none(self.store.runs.named("team", name))
        status = changed(view.status, queue=QueueStatus(reason=reason, updated=5.0))
        return StatusWrite("team", name, view.uid, view.resource_version, status, frozenset())

    def words(self, count: int, reason: str = "Priority") -> list[StatusWrite]:
        """To so many other runs."""
        for number in range(count):
            if self.store.runs.named("team", f"waits-{number:02}") is None:
                self.add(f"waits-{number:02}")
        return [self.word(f"waits-{number:02}", reason) for number in range(count)]

    def write(self, node: str = "n1", **changes: Any) -> StatusWrite:  # type: ignore[override]
        view = stored(self.store)
        update = {"attempt": 1, "assignment": assigned(view.status.assignment, [node]), **changes}
        status = changed(view.status, **update)
        return StatusWrite("team", "llama", "u1", view.resource_version, status, nodes=frozenset({node}))

    async def admit(self, *writes: StatusWrite) -> None:
        await asyncio.wait_for(self.executor.admissions.carry_out(ClusterPlan(writes=writes)), PATIENCE)
        await asyncio.sleep(0)

    async def answer(self, refusal: KubeError | None = None) -> None:
        self.kube.write = refusal
        self.answers.set()
        await asyncio.sleep(0)
        await self.executor.admissions.settle(PATIENCE)

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.store.snapshot_cluster(LEADER)

    @property
    def booked(self) -> Iterable[str]:
        return set(Ledger.from_snapshot(self.snapshot).booked_nodes)

    async def next_key(self) -> str:
        """The cycle goes before all other work."""
        return await asyncio.wait_for(self.queue.get(), PATIENCE)


@pytest.fixture
async def world() -> SlowWorld:
    return SlowWorld()


async def test_the_next_pass_does_not_wait_for_the_answer_and_takes_the_run_for_admitted(world: SlowWorld) -> None:
    write = world.write()
    await world.admit(write)
    assert world.kube.writes == 1
    assert not world.written
    assert world.booked == {"n1"}
    assert [view.status for view in world.snapshot.runs] == [write.status]
    await world.answer()
    assert world.booked == {"n1"}


async def test_whoever_acts_for_a_run_sees_only_what_was_written(world: SlowWorld) -> None:
    await world.admit(world.write())
    seen = not_none(world.store.snapshot_run("team", "llama", {}, LEADER))
    assert seen.run.status == TrainingRunStatus()


@pytest.mark.parametrize("refusal", [REFUSED, ApiError(409, "Conflict", "the object has been modified")])
async def test_nodes_of_a_write_that_was_refused_are_free_and_a_pass_comes(
    world: SlowWorld, refusal: KubeError
) -> None:
    await world.admit(world.write())
    await world.answer(refusal)
    assert not world.booked
    assert await world.next_key() == CLUSTER_KEY


async def test_nodes_of_a_write_without_an_answer_stay_booked_until_a_late_read(world: SlowWorld) -> None:
    await world.admit(world.write())
    settles_at = world.clock.now() + 15
    world.kube.write = UnknownOutcome("timeout", settles_at)
    world.answers.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.booked == {"n1"}
    world.kube.read = run(11)
    await world.clock.advance(14)
    assert world.booked == {"n1"}
    await world.clock.advance(2)
    assert not world.booked


async def test_a_run_that_is_being_written_is_not_written_again_and_loses_no_booking(world: SlowWorld) -> None:
    await world.admit(world.write())
    await world.admit(world.write("n2"))
    assert world.kube.writes == 1
    assert world.booked == {"n1"}
    await world.answer()
    assert world.booked == {"n1"}


async def test_what_is_heard_of_a_run_meanwhile_does_not_free_its_nodes(world: SlowWorld) -> None:
    await world.admit(world.write())
    world.store.runs.apply(run(11, spec={"nodes": 1, "image": "j", "command": ["train"]}))
    assert world.booked == {"n1"}
    assert world.snapshot.runs[0].resource_version == "11"


async def test_a_run_that_is_deleted_meanwhile_books_nothing(world: SlowWorld) -> None:
    await world.admit(world.write())
    world.store.runs.remove("team", "llama", "u1")
    assert not world.booked
    world.kube.read = ApiError(404, "NotFound", 'trainingruns.lockstep.dev "llama" not found')
    await world.answer(ApiError(404, "NotFound", 'trainingruns.lockstep.dev "llama" not found'))
    assert not world.snapshot.runs


async def test_a_pass_waits_for_what_other_runs_are_judged_by(world: SlowWorld) -> None:
    spec = {"nodes": 1, "image": "i", "command": ["train"], "singleton": "one"}
    other = run(11, spec=spec)
    other["metadata"]["generation"] = 2
    world.store.runs.apply(other)
    waiting = asyncio.create_task(world.admit(world.write()))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    world.answers.set()
    await asyncio.wait_for(waiting, PATIENCE)


async def test_a_pass_waits_for_whatever_is_more_than_words(world: SlowWorld) -> None:
    view = stored(world.store)
    kept = reservation_of(("n1",), ("u9",), 1.0, 2.0)
    reserved = replace(world.word(), status=changed(view.status, reservation=kept))
    waiting = asyncio.create_task(world.admit(reserved))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    world.answers.set()
    await asyncio.wait_for(waiting, PATIENCE)


class TestWords:
    """What those who wait are told: nobody else is judged by it, and no cycle waits for it."""

    async def test_a_pass_does_not_wait_for_them(self, world: SlowWorld) -> None:
        await world.admit(world.word())
        assert world.kube.writes == 1
        assert not world.written
        await world.answer()
        assert [patch["queue"]["reason"] for patch in world.written] == ["Priority"]
        assert await world.next_key() != CLUSTER_KEY  # nothing is to be decided anew

    async def test_few_are_sent_at_a_time_and_the_others_after_them(self, world: SlowWorld) -> None:
        await world.admit(*world.words(3 * AT_A_TIME))
        assert world.kube.writes == AT_A_TIME
        await world.answer()
        assert world.kube.writes == 3 * AT_A_TIME

    async def test_those_that_were_not_sent_are_forgotten_for_those_of_a_newer_pass(self, world: SlowWorld) -> None:
        await world.admit(*world.words(3 * AT_A_TIME))
        await world.admit(*world.words(AT_A_TIME + 1, reason="Quota"))
        await world.answer()
        reasons = sorted(patch["queue"]["reason"] for patch in world.written)
        assert reasons == ["Priority"] * AT_A_TIME + ["Quota"]  # one at a time for each run

    async def test_an_admission_of_whoever_is_being_told_something_comes_with_a_pass_after_that(
        self, world: SlowWorld
    ) -> None:
        await world.admit(world.word())
        await world.admit(world.write())
        assert (world.kube.writes, world.booked) == (1, set())
        assert not len(world.queue)
        await world.answer()
        assert await world.next_key() == CLUSTER_KEY
        await world.admit(world.write())
        assert world.booked == {"n1"}

    async def test_an_admission_of_somebody_else_does_not_wait(self, world: SlowWorld) -> None:
        world.add("other")
        await world.admit(*world.words(AT_A_TIME))
        await world.admit(world.write())
        assert world.kube.writes == AT_A_TIME + 1
        assert world.booked == {"n1"}

    async def test_a_run_that_was_told_too_much_is_told_later_and_admitted_at_once(self, world: SlowWorld) -> None:
        for _ in range(WRITES_AT_ONCE // 2 + 1):
            world.executor.pace.wrote(run_key("team", "llama"))
        await world.admit(world.word(), *world.words(1))
        await world.answer()
        assert [patch["queue"]["reason"] for patch in world.written] == ["Priority"], "to the other one"
        await world.clock.advance(60 / WRITES_A_MINUTE)
        assert await world.next_key() == CLUSTER_KEY
        await world.admit(world.word())
        await world.answer()
        assert world.kube.writes == 2
        for _ in range(WRITES_AT_ONCE):
            world.executor.pace.wrote(run_key("team", "llama"))
        await world.admit(world.write())
        assert world.booked == {"n1"}

    async def test_one_that_fails_makes_the_next_pass_wait_for_its_writes_and_fail_with_them(
        self, world: SlowWorld
    ) -> None:
        await world.admit(*world.words(3 * AT_A_TIME))
        await world.answer(REFUSED)
        assert world.kube.writes == AT_A_TIME
        assert await world.next_key() == CLUSTER_KEY
        with pytest.raises(UnreachableError):
            await world.admit(*world.words(1))
        world.kube.write = None
        await world.admit(*world.words(1))
        assert world.kube.writes == AT_A_TIME + 2

    async def test_one_about_a_run_that_has_changed_since_is_forgotten(self, world: SlowWorld) -> None:
        word = world.word()
        world.store.runs.apply(run(11))
        await world.admit(word)
        assert not world.kube.writes

    async def test_one_whose_answer_never_came_keeps_the_run_from_being_written_until_that_is_known(
        self, world: SlowWorld
    ) -> None:
        await world.admit(world.word())
        world.kube.write = UnknownOutcome("timeout", world.clock.now() + 15)
        world.answers.set()
        for _ in range(5):
            await asyncio.sleep(0)
        await world.admit(world.write())
        assert (world.kube.writes, world.booked) == (1, set())
        world.kube.write, world.kube.read = None, run(11)
        await world.clock.advance(16)
        assert await world.next_key() == CLUSTER_KEY
        await world.admit(world.write())
        assert world.booked == {"n1"}

    async def test_at_the_end_no_more_are_sent_and_those_sent_are_waited_for(self, world: SlowWorld) -> None:
        await world.admit(*world.words(3 * AT_A_TIME))
        ending = asyncio.create_task(world.executor.admissions.settle(PATIENCE))
        await asyncio.sleep(0.05)
        assert not ending.done()
        world.answers.set()
        assert await asyncio.wait_for(ending, PATIENCE)
        assert len(world.written) == AT_A_TIME

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"queue": QueueStatus(reason="Quota")}, True),
            ({"admission": AdmissionStatus(since=5.0, first_estimate=9.0)}, True),
            ({"admission": AdmissionStatus(met=("a Succeeded",))}, False),
            ({"admission": AdmissionStatus(time_limit=60)}, False),
            ({"attempt": 1}, False),
            ({"kueue": KueueStatus(queue="q", chosen_by="Label")}, False),
        ],
    )
    def test_they_change_what_a_run_is_told_and_since_when_it_waits(self, changes: dict[str, Any], word: bool) -> None:
        view = parse_run(run(10))
        status = changed(view.status, **changes)
        write = StatusWrite("team", "llama", "u1", "10", status, frozenset())
        assert is_queue_status(write, view) is word
        assert not is_queue_status(write, None)
        assert not is_queue_status(replace(write, nodes=frozenset({"n1"})), view)
        assert not is_queue_status(replace(write, events=(Event("Normal", "Undecidable", "Admit", ""),)), view)


async def test_after_a_failure_passes_fail_until_the_writes_succeed(world: SlowWorld) -> None:
    """The queue then makes the pauses between them longer and longer."""
    await world.admit(world.write())
    await world.answer(REFUSED)
    assert await world.next_key() == CLUSTER_KEY
    world.queue.done(CLUSTER_KEY)
    world.queue.clear()
    for _ in range(3):
        with pytest.raises(UnreachableError):
            await world.admit(world.write())
        assert not len(world.queue)  # at once it would only end the same way
    world.kube.write = None
    await world.admit(world.write())
    assert await world.next_key() == CLUSTER_KEY
    assert world.booked == {"n1"}


async def test_a_failure_counts_although_its_pass_still_waits_for_other_writes(
    world: SlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = run(20)
    named = other["metadata"] | {"name": "other", "uid": "u2"}
    world.store.runs.apply(other | {"metadata": named})
    view = not_none(world.store.runs.named("team", "other"))
    told = StatusWrite("team", "other", "u2", "20", changed(view.status, state="Pending"), frozenset())

    async def patch_status(_: Any, name: str, *__: Any, patch: Any, **___: Any) -> bytes:
        if name == "llama":
            raise REFUSED
        await world.answers.wait()
        return orjson.dumps(other | {"metadata": named | {"resourceVersion": "21"}, "status": patch})

    monkeypatch.setattr(world.kube, "patch_status", patch_status)
    deciding = asyncio.create_task(world.admit(world.write(), told))
    await asyncio.sleep(0.05)
    assert not deciding.done()
    world.answers.set()
    await asyncio.wait_for(deciding, PATIENCE)
    with pytest.raises(UnreachableError):
        await world.admit(world.write())


async def test_what_is_on_its_way_is_waited_for_at_the_end(world: SlowWorld) -> None:
    await world.admit(world.write())
    ending = asyncio.create_task(world.executor.admissions.settle(PATIENCE))
    await asyncio.sleep(0.05)
    assert not ending.done()
    world.answers.set()
    await asyncio.wait_for(ending, PATIENCE)
    assert world.written


@pytest.mark.slow
@pytest.mark.parametrize("beside", [True, False])
async def test_the_lease_is_not_given_up_while_a_write_may_still_take_effect(world: SlowWorld, beside: bool) -> None:
    """A successor that reads too early would give its nodes to somebody else."""
    if not beside:
        world.store.runs.apply(run(11, spec={"nodes": 1, "image": "i", "command": ["train"], "singleton": "one"}))
    deciding = asyncio.create_task(world.admit(world.write()))
    await asyncio.sleep(0.05)
    deciding.cancel()
    assert not await world.executor.admissions.settle(0.05)


async def test_what_a_pass_waited_for_when_it_was_cut_short_is_written_before_the_lease_is_given_up(
    world: SlowWorld,
) -> None:
    world.store.runs.apply(run(11, spec={"nodes": 1, "image": "i", "command": ["train"], "singleton": "one"}))
    deciding = asyncio.create_task(world.admit(world.write()))
    await asyncio.sleep(0.05)
    deciding.cancel()
    world.answers.set()
    assert await world.executor.admissions.settle(PATIENCE)
    assert world.written


async def test_a_result_that_is_not_known_keeps_the_lease_from_being_given_up(world: SlowWorld) -> None:
    await world.admit(world.write())
    world.kube.write = UnknownOutcome("timeout", world.clock.now() + 15)
    world.answers.set()
    assert not await world.executor.admissions.settle(0.05)


async def test_what_cannot_be_sent_before_an_answer_comes_is_not_decided_over_and_over(
    world: SlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reservation, say, after which the cycle asks to come again at once: it is not in status yet."""
    view = stored(world.store)
    status = changed(view.status, state="Pending")
    reserved = StatusWrite("team", "llama", "u1", "10", status, frozenset())
    plan = ClusterPlan(writes=(reserved,), wake_at=world.clock.now())
    monkeypatch.setattr(threaded_admission, "admit_isolating_failures", lambda *_: plan)
    world.kube.write = UnknownOutcome("timeout", world.clock.now() + 15)
    world.answers.set()
    for due in (1, 0):  # once more at once, and then not before there is an answer
        world.queue.clear()
        await world.reconciler.reconcile(CLUSTER_KEY)
        world.queue.wake_at("last", world.clock.now())
        key = await world.next_key()
        world.queue.done(key)
        assert (key == CLUSTER_KEY) is bool(due)
    world.queue.clear()
    await world.clock.advance(16)
    assert await world.next_key() == CLUSTER_KEY
