"""A run of the simulated world: what it trains, saves and fails by, in a line each."""

from lockstep.api.run_status import TrainingRunStatus
from support.made_once import made_once
from support.values import not_none
from support.world import World, world_with_gang

RUN = "one"
NAN = "Loss:NaN"


@made_once
def training(nodes: int = 3, spare: int = 3, *, step: int = 10, **fields: object) -> World:
    """A run that has made and saved ``step`` steps."""
    w = world_with_gang(nodes, nodes + spare, **fields)
    if step:
        train(w, step)
    return w


def train(w: World, steps: int, *, saving: bool = True) -> None:
    w.train(RUN, steps)
    if not saving:
        w.saved[w.runs[RUN].uid].pop()
    w.settle()
    w.tell_of_save(RUN, max(w.saved.get(w.runs[RUN].uid, [0])))
    w.settle()


def status(w: World) -> TrainingRunStatus:
    return w.status(RUN)


def state(w: World) -> str:
    return status(w).state


def resumed(w: World) -> tuple[int, int | None]:
    """Step and attempt of the checkpoint that the current attempt began from."""
    start = not_none(status(w).start)
    assert start.resume is not None
    return start.resume.step, start.resume.attempt


def fail(
    w: World, rank: int, code: int = 1, *, signs: tuple[str, ...] = (), stderr: str = "", after: float = 5.0
) -> None:
    """A rank fails, and the gang comes back if it can."""
    w.now += after
    w.exit_child(RUN, rank, code, signs=signs, stderr=stderr)
    w.pass_time(30, step=2)
