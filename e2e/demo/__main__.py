"""Real training on four nodes, one of which loses power in the middle; told while it happens.

Without --kubeconfig everything is brought up on this machine and gone afterwards: a control plane, five nodes whose
pods are real processes, and the operator. With it the run is played on that cluster: Lockstep's CRDs and RBAC are
applied there, and the operator runs here, so pods must reach this machine. The cluster needs four nodes, a default
storage class that many nodes can mount, and --image with Python and JAX. Nodes are killed only where they are process
nodes; elsewhere a pod is deleted instead.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from demo.story import Story
from harness.kube import Kubectl, install
from harness.operator import OperatorProcess
from harness.waiting import WaitedInVain
from harness.world import started
from localcluster.errors import LocalClusterError
from localcluster.processnodes import ProcessNodes
from localcluster.processnodes.node import NodeShape
from lockstep.cli.errors import CliError

# Four nodes for the gang and one to move to.
NODES = [NodeShape(f"node-{index}", gpus=0, rdma=0, rack=f"rack-{index // 3}") for index in range(5)]
# A person is watching: the operator writes progress each second, and gives up a silent node sooner than by default.
SETTINGS = {"progressWriteInterval": 1, "heartbeatMin": 1, "heartbeatMax": 2.5, "stepsStoppedAfter": 5}


def main() -> int:
    """Exit code 0 when everything was as promised."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig", type=Path, help="a cluster to use instead of one of our own")
    parser.add_argument("--image", help="image with Python and JAX, for the nodes of that cluster")
    parser.add_argument("--operator-address", help="where pods of that cluster reach this machine")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {line}", flush=True)

    try:
        with _stage(options, say) as story:
            wrong = story.play(options.image)
    except (LocalClusterError, WaitedInVain, CliError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for sentence in wrong:
        say(f"NOT AS PROMISED: {sentence}")
    if not wrong:
        say("all of it was as promised")
    return 1 if wrong else 0


@contextlib.contextmanager
def _stage(options: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Story]:
    if options.kubeconfig is None:
        with started(process_nodes=NODES, settings=SETTINGS, report=say) as world:
            yield Story(world.kubectl, say, claims=world.cluster.state_dir / "pvc", nodes=world.process_nodes)
        return
    kubectl = Kubectl(options.kubeconfig)
    # A local cluster's kubeconfig lies in its state directory, where its process nodes are found too.
    state = options.kubeconfig.resolve().parent.parent
    nodes = ProcessNodes(state)
    is_local = nodes.is_running()
    install(kubectl)
    say("Lockstep is installed: CRDs, RBAC, a service account of its own")
    address = options.operator_address or (nodes.gateway if is_local else _address_towards(kubectl))
    with tempfile.TemporaryDirectory(prefix="lockstep-demo-") as folder:
        operator = OperatorProcess.start(kubectl, Path(folder), address=address, settings=SETTINGS)
        try:
            say(f"the operator leads; workers reach it at {operator.url}")
            story = Story(kubectl, say, claims=state / "pvc" if is_local else None, nodes=nodes if is_local else None)
            yield story
            if is_local and story.victim:
                nodes.return_node(story.victim)
                say(f"{story.victim} is switched on again")
        finally:
            operator.stop()


def _address_towards(kubectl: Kubectl) -> str:
    """This machine's address as the cluster's API server sees it. Nothing is sent."""
    server = urlsplit(kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server.hostname, server.port or 443))
        return str(probe.getsockname()[0])


if __name__ == "__main__":
    sys.exit(main())
