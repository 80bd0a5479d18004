"""Process nodes: a test kubelet whose containers are real local processes in namespaces of their own.

`ProcessNodes` is the entry point for tests and the demo; `python -m localcluster.processnodes` for people.
"""

from localcluster.processnodes.client import ProcessNodes
from localcluster.processnodes.errors import ProcessNodesError

__all__ = ["ProcessNodes", "ProcessNodesError"]
