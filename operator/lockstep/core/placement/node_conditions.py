"""Conditions of a node on which nothing can train."""

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
