"""How many ranks a run trains with: all that it asks for or, where it is elastic, as many as can be had."""

from lockstep.api.run_spec import TrainingRunSpec


def world_size(spec: TrainingRunSpec, nodes: int) -> int:
    """Ranks of a gang that has ``nodes`` usable nodes; 0: they are too few."""
    if nodes >= spec.nodes:
        return spec.nodes
    if spec.elastic is None:
        return 0
    size = nodes - nodes % spec.elastic.multiple_of
    return size if size >= spec.elastic.min else 0
