"""Conditions of a node on which nothing can train, and other marks by which gangs alone go."""

from collections.abc import Collection

from lockstep.core.model.snapshot import NodeView

HARDWARE_CONDITIONS = frozenset(
    {
        "XidCriticalError",
        "CperHardwareErrorFatal",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "XfsShutdown",
        "DiskBadBlock",
    }
)


def bad_conditions(node: NodeView) -> tuple[str, ...]:
    """Conditions of the node that explain a failure there, in the order of their names."""
    return tuple(sorted(name for name in node.conditions if name in HARDWARE_CONDITIONS))


def is_refused_by_us_alone(node: NodeView, drain_taints: Collection[str]) -> bool:
    """No gang gets the node, by what nobody else who places pods goes by: its conditions, or that gangs are to leave
    it."""
    if node.drain or (drain_taints and any(taint.key in drain_taints for taint in node.taints)):
        return True
    return bool(node.conditions and bad_conditions(node))
