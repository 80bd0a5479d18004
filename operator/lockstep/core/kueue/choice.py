"""Who admits a run: Lockstep, or Kueue by a LocalQueue."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.api.base import names
from lockstep.api.kueue_status import ChosenBy
from lockstep.api.run_spec import TopologyRule, TrainingRunSpec
from lockstep.core.model.accelerators import gpu_request
from lockstep.core.model.kueue import api_names
from lockstep.core.model.problems import Problem
from lockstep.core.model.snapshot import QueueView, RunView
from lockstep.core.model.tunables import Tunables


@dataclass(frozen=True, slots=True)
class Choice:
    """A LocalQueue in the run's namespace, and what named it."""

    queue: str
    by: ChosenBy


def choice_of(run: RunView, queue: QueueView | None) -> Choice | None:
    """The LocalQueue that is to admit the run; None: Lockstep admits it. The label wins over the TrainingQueue."""
    labelled = run.labels.get(api_names.LABEL_QUEUE, "")
    if labelled:
        return Choice(labelled, "Label")
    if queue is not None and queue.spec.backend == "Kueue":
        return Choice(queue.spec.local_queue or queue.name, "TrainingQueue")
    return None


def kueue_problems(spec: TrainingRunSpec, levels: Sequence[str], tunables: Tunables) -> Iterator[Problem]:
    """What a run may not ask for where Kueue admits it. ``levels``: those by which Kueue places, if it does."""
    if spec.elastic is not None:
        yield Problem("spec.elastic", "Kueue reserves one number of nodes; leave it out, or use a Builtin queue")
    if spec.spare_nodes:
        yield Problem("spec.spareNodes", "Kueue reserves nodes for ranks alone; leave it out, or use a Builtin queue")
    if gpu_request(spec, tunables.accelerators).count is None:
        yield Problem("spec.gpusPerNode", "Kueue has to be told how many to reserve; write e.g. 8, or 0 for none")
    if not levels:
        return
    packed = 0
    for index, rule in enumerate(spec.placement.topology):
        path = f"spec.placement.topology[{index}]"
        if rule.mode != "Required":
            continue
        label = tunables.topology_levels.get(rule.level)
        packed += 1
        if rule.policy != "Pack" or rule.max_nodes is not None:
            yield Problem(path, "Kueue's topology can only require Pack without maxNodes; write mode: Preferred")
        elif packed > 1:
            yield Problem(path, "Kueue's topology can require one level; write mode: Preferred for the others")
        elif label is not None and label not in levels:
            yield Problem(path, f"Kueue's Topology has no level {label}; it has {', '.join(levels)}")


def topology_rule(spec: TrainingRunSpec, levels: Sequence[str], tunables: Tunables) -> tuple[TopologyRule, str] | None:
    """The rule that Kueue is asked to place by, and its label: the first that is required, else preferred."""
    rules = [
        (rule, label)
        for rule in spec.placement.topology
        if rule.policy == "Pack" and (label := tunables.topology_levels.get(rule.level, "")) in levels
    ]
    return next((each for each in rules if each[0].mode == "Required"), rules[0] if rules else None)


def workload_name(run: RunView) -> str:
    """The one name its Workload can have, so that creating it twice is harmless; at most 58 characters."""
    return f"{names.RUN_KIND.lower()}-{run.name}-{run.uid[:5]}"
