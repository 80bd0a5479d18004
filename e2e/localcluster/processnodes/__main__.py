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
from localcluster.processnodes.node import Cut, NodeShape, numbered


def add_nodes(options: argparse.Namespace) -> None:
    """Start the daemon where none runs, then add nodes."""
    nodes = ProcessNodes(options.state)
    taken = len(nodes.state()["nodes"]) if nodes.is_running() else 0
    like = NodeShape(
        name="",
        gpus=options.gpus,
        gpu_product=options.gpu_product,
        rdma=options.rdma,
        cpu=options.cpu,
        memory=options.memory,
        zone=options.zone,
    )
    shapes = numbered(options.prefix, taken, options.nodes, options.racks, like)
    if nodes.is_running():
        nodes.add(shapes)
    else:
        ProcessNodes.start(
            options.state,
            options.kubeconfig or LocalCluster.attach(options.state).kubeconfig,
            shapes,
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
    # Accepted after the command as well, where people write it; SUPPRESS keeps what stood before it.
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument("--state", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    add = commands.add_parser("add", parents=[state], help="add nodes; starts the daemon where none runs")
    add.add_argument("--nodes", type=int, default=4)
    add.add_argument("--prefix", default="proc")
    add.add_argument("--gpus", type=int, default=8)
    add.add_argument("--gpu-product", default=NodeShape.gpu_product)
    add.add_argument("--rdma", type=int, default=8)
    add.add_argument("--cpu", default=NodeShape.cpu)
    add.add_argument("--memory", default=NodeShape.memory)
    add.add_argument("--racks", type=int, default=1)
    add.add_argument("--zone", default=NodeShape.zone)
    add.add_argument("--kubeconfig", type=Path, help="default: the one in the state directory")
    add.add_argument("--path-prepend", type=Path, action="append", default=[], metavar="DIR")
    add.add_argument("--shared-root", type=Path, action="append", default=[], metavar="DIR")
    add.add_argument("--heartbeat-seconds", type=float, default=4.0)
    add.set_defaults(run=add_nodes)

    status = commands.add_parser("status", parents=[state], help="nodes, addresses, faults")
    status.set_defaults(run=lambda options: show(ProcessNodes.attach(options.state)))
    down = commands.add_parser("down", parents=[state], help="stop all nodes and remove every trace of them")
    down.set_defaults(run=lambda options: ProcessNodes(options.state).stop())

    def fault(name: str, words: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[state], help=words)
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
    out = commands.add_parser("leave", parents=[state], help="without root: give up what `enter` made")
    out.set_defaults(run=lambda options: leave(options.state))
    daemon = commands.add_parser("serve", parents=[state], help="the daemon itself, in the foreground")
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
