"""Six nodes in two racks."""

from dataclasses import replace
from typing import Any

from lockstep.core.model.snapshot import NodeView

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"


def site(**changes: Any) -> dict[str, NodeView]:
    """Two racks of three nodes with eight GPUs; ``changes`` by node name."""
    found = {}
    for name in ("n1", "n2", "n3", "n10", "n11", "n12"):
        labels = {RACK: "r1" if len(name) == 2 else "r2", ZONE: "a", "gpu": "h100"}
        view = NodeView(name=name, uid=name, labels=labels, allocatable={GPU: 8})
        found[name] = replace(view, **changes.get(name, {}))
    return found
