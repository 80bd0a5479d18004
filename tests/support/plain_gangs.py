"""Gangs without workers, one of them running, and what is alive of it."""

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import PodView
from support.world import World, node, phase, spec


def world(nodes: int = 4) -> World:
    return World({name: node(name) for name in (f"n{index}" for index in range(1, nodes + 1))})


def plain(nodes: int = 2, **fields: object) -> TrainingRunSpec:
    return spec(nodes, worker="Disabled", **fields)


def running(nodes: int = 2, of: int = 4, **fields: object) -> World:
    w = world(of)
    w.roll_out("one", plain(nodes, **fields))
    assert phase(w) is Phase.RUNNING
    return w


def live(w: World) -> list[PodView]:
    return [pod for pod in w.pods.values() if not pod.is_terminal]


def attempts_alive(w: World) -> set[int]:
    return {pod.attempt for pod in live(w)}


def condition(w: World, kind: str) -> tuple[str, str, str]:
    found = next(c for c in w.status("one").conditions if c.type == kind)
    return found.status, found.reason, found.message
