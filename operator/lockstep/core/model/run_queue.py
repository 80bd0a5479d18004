"""Which queue a run is in."""

from lockstep.core.model import assignment as slots
from lockstep.core.model.snapshot import RunView


def queue_of(run: RunView) -> str:
    """The TrainingQueue that gave the run the nodes it has, whatever its spec says by now; without nodes the one of its
    spec. Empty: nobody can tell."""
    given = run.status.resolved.queue
    if given and slots.is_held(run.status.assignment):
        return given
    return run.spec.queue if run.spec is not None else ""
