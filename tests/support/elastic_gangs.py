"""Gangs that train, save and lose ranks, and one that has shrunk."""

from lockstep.core.model import assignment as slots
from support.made_once import made_once
from support.world import World, node, spec


def world(count: int, *, saved_as: str = "TorchDCP") -> World:
    w = World({f"n{i}": node(f"n{i}", rack=f"rack-{i // 4}") for i in range(count)}, format=saved_as, listens=True)
    w.leader_since = w.now
    return w


def running(w: World, nodes: int, **fields: object) -> World:
    w.roll_out("llama", spec(nodes, **fields))
    w.pass_time(4)
    assert len(w.children("llama")) == slots.world(w.status("llama").assignment), w.status("llama")
    return w


def save(w: World, steps: int = 10) -> None:
    w.train("llama", steps)
    w.settle()
    w.tell_of_save("llama", w.saved["uid-llama"][-1])
    w.pass_time(2)


def ranks(w: World) -> tuple[int, ...]:
    return tuple(slots.ranked_slots(w.status("llama").assignment))


@made_once
def shrunk(elastic: dict[str, object] | None = None, **fields: object) -> World:
    w = running(world(4), 4, elastic=elastic or {"min": 2}, **fields)
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(70, step=5)
    return w
