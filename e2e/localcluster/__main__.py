"""The command line: `python -m localcluster up | down | status | start | stop | nodes | kubectl | build`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from localcluster import build, control_plane
from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError, NotRunningError
from localcluster.kwok import NodeBatch, Taint, is_ready
from localcluster.processnodes import ProcessNodes

NODES_PER_RACK = 16  # of `up --kwok`, which asks for nothing but a number


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments) or 0)
    except (LocalClusterError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _say(line: str) -> None:
    print(line, flush=True)


def _build(arguments: argparse.Namespace) -> None:
    build.build_all(_say, arguments.programs or None)
    _say(f"all programs are current in {build.build_dir() / 'bin'}")


def _up(arguments: argparse.Namespace) -> None:
    build.build_all(_say)
    started = time.monotonic()
    cluster = LocalCluster.start(
        arguments.state, bind=arguments.bind, gang_scheduling=arguments.gang_scheduling, report=_say
    )
    _say(f"control plane up in {time.monotonic() - started:.1f} s")
    if arguments.kwok and not cluster.kwok_nodes():
        racks = -(-arguments.kwok // NODES_PER_RACK)
        _add(cluster, NodeBatch(arguments.kwok, racks=racks))
    _say(f"export KUBECONFIG={cluster.kubeconfig}")


def _down(arguments: argparse.Namespace) -> None:
    ProcessNodes(arguments.state).stop()
    try:
        cluster = LocalCluster.attach(arguments.state)
    except NotRunningError:
        _say(f"nothing to stop in {arguments.state.absolute()}")
        return
    cluster.stop(keep_data=arguments.keep_data)
    _say("stopped, data kept" if arguments.keep_data else "stopped, data removed, logs kept")


def _status(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster.attach(arguments.state)
    components = cluster.status()
    _say(f"Kubernetes  {build.kubernetes_version()} at {cluster.url}")
    _say(f"kubeconfig  {cluster.kubeconfig}")
    _say(f"state       {cluster.state_dir}")
    _say(f"reachable   {'on every interface of this machine' if cluster.layout.bind else 'on loopback only'}")
    for setting in control_plane.settings(cluster.layout):
        _say(f"setting     {setting}")
    _say("")
    _say(f"{'COMPONENT':<24} {'PID':>8} {'PORT':>6}  HEALTHY")
    for component in components:
        pid = "-" if component.pid is None else str(component.pid)
        healthy = "yes" if component.is_healthy else "no"
        _say(f"{component.name:<24} {pid:>8} {component.port:>6}  {healthy}")
    if any(component.name == "kube-apiserver" and component.is_healthy for component in components):
        nodes = cluster.kwok_nodes()
        _say(f"\n{len(nodes)} simulated nodes, {sum(is_ready(node) for node in nodes)} Ready")
    return 0 if all(component.is_healthy for component in components) else 1


def _start(arguments: argparse.Namespace) -> None:
    LocalCluster.attach(arguments.state).start_component(arguments.component)


def _stop(arguments: argparse.Namespace) -> None:
    LocalCluster.attach(arguments.state).stop_component(arguments.component, kill=arguments.kill)


def _pause(arguments: argparse.Namespace) -> None:
    LocalCluster.attach(arguments.state).pause_component(arguments.component)


def _resume(arguments: argparse.Namespace) -> None:
    LocalCluster.attach(arguments.state).resume_component(arguments.component)


def _kubectl(arguments: argparse.Namespace) -> None:
    cluster = LocalCluster.attach(arguments.state)
    kubectl = str(build.binary("kubectl"))
    os.execv(kubectl, [kubectl, f"--kubeconfig={cluster.kubeconfig}", *arguments.arguments])


def _nodes_add(arguments: argparse.Namespace) -> None:
    if arguments.process:
        sizes = [f"--{name}={getattr(arguments, name)}" for name in ("gpus", "rdma", "cpu", "memory", "racks")]
        module = [sys.executable, "-m", "localcluster.processnodes", f"--state={arguments.state}"]
        os.execv(sys.executable, [*module, "add", f"--nodes={arguments.process}", *sizes])
    batch = NodeBatch(
        count=arguments.count,
        gpu_type=arguments.gpu_type,
        gpus=arguments.gpus,
        rdma=arguments.rdma,
        cpu=arguments.cpu,
        memory=arguments.memory,
        hugepages=arguments.hugepages,
        racks=arguments.racks,
        zones=arguments.zones,
        prefix=arguments.prefix,
        taints=[Taint.parse(text) for text in arguments.taint],
        labels=dict(_label(text) for text in arguments.label),
    )
    _add(LocalCluster.attach(arguments.state), batch)


def _add(cluster: LocalCluster, batch: NodeBatch) -> None:
    started = time.monotonic()
    names = cluster.add_kwok_nodes(batch)
    _say(f"{len(names)} nodes Ready in {time.monotonic() - started:.1f} s: {names[0]} to {names[-1]}")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is no label: write key=value")
    return key, value


def _nodes_remove(arguments: argparse.Namespace) -> None:
    if bool(arguments.names) == arguments.all:
        raise ValueError("name the nodes to remove, or say --all")
    cluster = LocalCluster.attach(arguments.state)
    removed = cluster.remove_kwok_nodes(None if arguments.all else arguments.names)
    _say(f"{len(removed)} nodes removed")


def _nodes_silence(arguments: argparse.Namespace) -> None:
    LocalCluster.attach(arguments.state).silence_kwok_nodes(arguments.names)


def _nodes_restore(arguments: argparse.Namespace) -> None:
    LocalCluster.attach(arguments.state).restore_kwok_nodes(arguments.names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localcluster", description="A real Kubernetes control plane as local processes."
    )
    parser.add_argument(
        "--state", type=Path, default=Path(".cluster"), help="directory of the cluster (default: .cluster)"
    )
    # Accepted after the verb as well, where people write it; SUPPRESS keeps what stood before the verb.
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument("--state", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("build", help="build what is missing or out of date")
    verb.add_argument("programs", nargs="*", metavar="PROGRAM", help="only these; the local cluster's when left out")
    verb.set_defaults(run=_build)

    verb = verbs.add_parser("up", parents=[state], help="start the control plane, built first if needed")
    verb.add_argument("--bind", metavar="ADDRESS", help="an address of this machine to be reached at as well")
    verb.add_argument("--kwok", type=int, default=0, metavar="N", help="N simulated nodes if it has none")
    verb.add_argument(
        "--gang-scheduling", action="store_true", help="a new cluster has Kubernetes' own gang scheduling (alpha)"
    )
    verb.set_defaults(run=_up)

    verb = verbs.add_parser("down", parents=[state], help="stop everything and delete the cluster's data")
    verb.add_argument("--keep-data", action="store_true", help="so that the next `up` finds all of it again")
    verb.set_defaults(run=_down)

    verb = verbs.add_parser("status", parents=[state], help="components, ports, health, kubeconfig")
    verb.set_defaults(run=_status)

    component = argparse.ArgumentParser(add_help=False, parents=[state])
    component.add_argument("component", help=", ".join(control_plane.COMPONENTS))
    for name, run, text in (
        ("start", _start, "start one component with the data and port it had"),
        ("pause", _pause, "freeze one component (SIGSTOP)"),
        ("resume", _resume, "let a frozen component go on"),
    ):
        verbs.add_parser(name, parents=[component], help=text).set_defaults(run=run)
    verb = verbs.add_parser("stop", parents=[component], help="stop one component, for outage tests")
    verb.add_argument("--kill", action="store_true", help="SIGKILL instead of SIGTERM")
    verb.set_defaults(run=_stop)

    verb = verbs.add_parser("kubectl", help="kubectl as the administrator; everything after it is kubectl's")
    verb.add_argument("arguments", nargs=argparse.REMAINDER)
    verb.set_defaults(run=_kubectl)

    _add_node_verbs(verbs.add_parser("nodes", help="simulated nodes"), state)
    return parser


def _add_node_verbs(nodes: argparse.ArgumentParser, state: argparse.ArgumentParser) -> None:
    verbs = nodes.add_subparsers(required=True, metavar="VERB")
    default = NodeBatch(count=1)
    verb = verbs.add_parser("add", parents=[state], help="add nodes that are alike, spread over racks")
    kind = verb.add_mutually_exclusive_group(required=True)
    kind.add_argument("--count", type=int, metavar="N", help="N nodes played by kwok")
    kind.add_argument("--process", type=int, metavar="N", help="N nodes whose pods are real processes")
    verb.add_argument("--gpu-type", default=default.gpu_type)
    verb.add_argument("--gpus", type=int, default=default.gpus, help="0 makes CPU nodes")
    verb.add_argument("--rdma", type=int, default=default.rdma)
    verb.add_argument("--cpu", default=default.cpu)
    verb.add_argument("--memory", default=default.memory)
    verb.add_argument("--hugepages", default=default.hugepages)
    verb.add_argument("--racks", type=int, default=default.racks)
    verb.add_argument("--zones", type=int, default=default.zones)
    verb.add_argument("--prefix", default=default.prefix)
    verb.add_argument("--taint", action="append", default=[], metavar="KEY=VALUE:EFFECT")
    verb.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    verb.set_defaults(run=_nodes_add)

    verb = verbs.add_parser("remove", parents=[state], help="delete nodes")
    verb.add_argument("names", nargs="*")
    verb.add_argument("--all", action="store_true")
    verb.set_defaults(run=_nodes_remove)

    for name, run, text in (
        ("silence", _nodes_silence, "stop nodes from answering, as if cut off or powered down"),
        ("restore", _nodes_restore, "bring silenced nodes back"),
    ):
        verb = verbs.add_parser(name, parents=[state], help=text)
        verb.add_argument("names", nargs="+")
        verb.set_defaults(run=run)


if __name__ == "__main__":
    sys.exit(main())
