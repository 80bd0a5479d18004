"""Gangs whose saves are in shards on the nodes' own disks, at another size."""

import pytest
from msgspec import structs

from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import CheckpointReport
from support.elastic_gangs import running, save, world
from support.values import not_none
from support.world import World, spec


class WithOwnDisks(World):
    """What is on a node's own disk may say how many nodes saved it."""

    say_how_many = False

    def _rows(self, uid: str, steps: list[int], world: int, node: str) -> tuple[CheckpointReport, ...]:
        rows = super()._rows(uid, steps, world, node)
        has_shared = not_none(not_none(self.runs["llama"].spec).checkpoint).shared is not None
        disk = tuple(row for row in rows if row.tier == "local")
        disk = disk if self.say_how_many else tuple(structs.replace(row, world=0) for row in disk)
        # Every other save is on the disks alone.
        return tuple(row for row in rows if has_shared and row.tier == "shared" and row.step % 20) + disk


OWN_DISKS: dict[str, object] = {"local": {"storage": "nvme"}}


def with_own_disks(count: int) -> WithOwnDisks:
    tunables = Tunables(gang=GangSettings(local_storages={"nvme": "/nvme"}))
    return WithOwnDisks(world(count).nodes, tunables, format="TorchDCP", listens=True)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 3)])
def test_a_gang_whose_shards_do_not_say_of_how_many_they_are_is_not_resized(before: int, after: int) -> None:
    w = running(with_own_disks(6), before, checkpoint=OWN_DISKS)
    save(w)
    w.apply("llama", spec(after, checkpoint=OWN_DISKS))
    w.pass_time(30, step=2)
    status = w.status("llama")
    assert (status.attempt, slots.world(status.assignment)) == (1, before)
    words = "step 10 is in shards on the nodes' own disks, which do not say of how many nodes they are"
    assert words in not_none(find(status, "AtFullSize")).message


@pytest.mark.parametrize("say_how_many", [True, False])
def test_shards_that_a_lost_node_took_with_it_are_no_checkpoint_of_those_that_are_left(say_how_many: bool) -> None:
    w = with_own_disks(4)
    w.say_how_many = say_how_many
    running(w, 4, elastic={"min": 2}, checkpoint={**OWN_DISKS, "shared": {"claimName": "lustre"}})
    save(w)
    save(w)
    w.lose_ranks("llama", 3)
    w.pass_time(100, step=5)
    status = w.status("llama")
    assert slots.world(status.assignment) == 3
    assert not_none(not_none(status.start).resume).step == 10, "the newest in the shared tier"
