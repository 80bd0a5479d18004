"""Process nodes from the command line. Run with --help."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError
from localcluster.processnodes.client import ProcessNodes
from localcluster.processnodes.daemon import Settings, serve
from localcluster.processnodes.namespace import enter, leave
from localcluster.processnodes.node import Cut, NodeShape


def node_shapes(options: argparse.Namespace, taken: int) -> list[NodeShape]:
    """Shapes numbered after the ``taken`` ones, filling racks one after the other."""
    per_rack = -(-options.nodes // options.racks)
    return [
        NodeShape(
            name=f"{options.prefix}-{taken + index}",
            gpus=options.gpus,
            gpu_product=options.gpu_product,
            rdma=options.rdma,
            cpu=options.cpu,
            memory=options.memory,
            zone=options.zone,
            rack=f"rack-{index // per_rack:03d}",
        )
        for index in range(options.nodes)
    ]


def add_nodes(options: argparse.Namespace) -> None:
    """Start the daemon where none runs, then add nodes."""
    nodes = ProcessNodes(options.state)
    if nodes.is_running():
        nodes.add(node_shapes(options, len(nodes.state()["nodes"])))
    else:
        kubeconfig = options.kubeconfig or LocalCluster.attach(options.state).kubeconfig
        nodes = ProcessNodes.start(
            options.state,
            kubeconfig,
            node_shapes(options, 0),
            path_prepend=options.path_prepend,
            shared_roots=options.shared_root,
            heartbeat_seconds=options.heartbeat_seconds,
        )
    show(nodes)


def show(nodes: ProcessNodes) -> None:
    state = nodes.state()
    print(f"bridge {state['bridge']}, the host is {state['gateway']} for the nodes, daemon pid {state['pid']}")
    print(f"{'NODE':<20} {'ADDRESS':<16} {'STATE':<8} {'PODS':<5} CUT FROM")
    for node in state["nodes"]:
        cuts = ", ".join(node["cuts"]) or "-"
        print(f"{node['name']:<20} {node['address']:<16} {node['state']:<8} {node['pods']:<5} {cuts}")


def parser() -> argparse.ArgumentParser:
    """All commands; each sets ``run``, a function of the parsed options."""
    top = argparse.ArgumentParser(prog="python -m localcluster.processnodes", description=__doc__)
    top.add_argument("--state", type=Path, default=Path(".cluster"), help="the local cluster's state directory")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("add", aliases=["up"], help="add nodes; starts the daemon where none runs")
    up.add_argument("--nodes", type=int, default=4)
    up.add_argument("--prefix", default="proc")
    up.add_argument("--gpus", type=int, default=8)
    up.add_argument("--gpu-product", default=NodeShape.gpu_product)
    up.add_argument("--rdma", type=int, default=8)
    up.add_argument("--cpu", default=NodeShape.cpu)
    up.add_argument("--memory", default=NodeShape.memory)
    up.add_argument("--racks", type=int, default=1)
    up.add_argument("--zone", default=NodeShape.zone)
    up.add_argument("--kubeconfig", type=Path, help="default: the one in the state directory")
    up.add_argument("--path-prepend", type=Path, action="append", default=[], metavar="DIR")
    up.add_argument("--shared-root", type=Path, action="append", default=[], metavar="DIR")
    up.add_argument("--heartbeat-seconds", type=float, default=4.0)
    up.set_defaults(run=add_nodes)

    status = commands.add_parser("status", help="nodes, addresses, faults")
    status.set_defaults(run=lambda options: show(ProcessNodes.attach(options.state)))
    down = commands.add_parser("down", help="stop all nodes and remove every trace of them")
    down.set_defaults(run=lambda options: ProcessNodes(options.state).stop())

    def fault(name: str, words: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=words)
        command.add_argument("node")
        return command

    kill = fault("kill-node", "power off: every process dies at once, unannounced")
    kill.add_argument("--wipe", action="store_true", help="lose the node's disk too")
    kill.set_defaults(run=lambda o: ProcessNodes.attach(o.state).kill_node(o.node, wipe=o.wipe))
    freeze = fault("freeze-node", "stop every process and the network, heartbeats included")
    freeze.set_defaults(run=lambda o: ProcessNodes.attach(o.state).freeze_node(o.node))
    thaw = fault("thaw-node", "let a frozen node go on")
    thaw.set_defaults(run=lambda o: ProcessNodes.attach(o.state).thaw_node(o.node))
    cut = fault("cut-node", "partition a node")
    cut.add_argument("--from", dest="targets", action="append", choices=[*Cut, "all"], metavar="|".join([*Cut, "all"]))
    cut.set_defaults(run=cut_node)
    heal = fault("heal-node", "end every partition of a node")
    heal.set_defaults(run=lambda o: ProcessNodes.attach(o.state).heal_node(o.node))
    back = fault("return-node", "reboot: back with its disk and without its processes")
    back.set_defaults(run=lambda o: ProcessNodes.attach(o.state).return_node(o.node))

    inside = commands.add_parser("enter", help="without root: run a command where process nodes can be made")
    inside.add_argument("command", nargs=argparse.REMAINDER)
    inside.set_defaults(run=lambda options: enter(options.state, options.command))
    out = commands.add_parser("leave", help="without root: give up what `enter` made")
    out.set_defaults(run=lambda options: leave(options.state))
    daemon = commands.add_parser("serve", help="the daemon itself, in the foreground")
    daemon.set_defaults(run=lambda options: asyncio.run(serve(Settings.load(options.state))))
    return top


def cut_node(options: argparse.Namespace) -> None:
    targets = [] if not options.targets or "all" in options.targets else options.targets
    ProcessNodes.attach(options.state).cut_node(options.node, *targets)


def main() -> int:
    options = parser().parse_args()
    try:
        options.run(options)
    except LocalClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
