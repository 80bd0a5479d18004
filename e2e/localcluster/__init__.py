"""A real Kubernetes control plane as local processes, with simulated GPU nodes by the hundred.

`LocalCluster` is the entry point for tests, benchmarks and the demo; `python -m localcluster` for people.
"""

from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError

__all__ = ["LocalCluster", "LocalClusterError"]
