"""Ray: one cluster of all nodes for each attempt; the command is the driver, on rank 0, once all nodes have joined.

Ports, token and directory are the attempt's. Ray is started by the worker on each node, and never by the command.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.api.run_spec import RaySpec, TrainingRunSpec
from lockstep.core.model.problems import Problem

_OURS = {
    **dict.fromkeys(("--head", "--address", "--node-ip-address", "--port", "--block"), "each attempt has its own"),
    **dict.fromkeys(("--dashboard-host", "--dashboard-port"), "each attempt has its own, told in status.start"),
    "--temp-dir": "it lies in the attempt's scratch, and goes with it",
}


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Further arguments of ``ray start``, how many words stay in front of it, and whether a node may join later."""
    asked = spec.launcher.ray or RaySpec()
    return {
        "entrypoint": len(spec.entrypoint),
        "arguments": list(asked.arguments),
        "joins": asked.on_node_loss == "Join",
    }


def deciding_ranks(world_size: int) -> range:
    """Rank 0, where the driver is."""
    return range(1)


def steps(spec: TrainingRunSpec) -> bool:
    """Only where they are asked for: Ray reaches its nodes by itself."""
    return spec.launcher.steps


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """What starts a second Ray inside this one, takes what is the attempt's, or ends the driver where it is to save."""
    return list(_problems(spec))


def _problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    asked = spec.launcher.ray or RaySpec()
    remedy = "write launcher.ray.onNodeLoss: Restart"
    if asked.on_node_loss == "Join" and spec.launcher.steps:
        words = "steps reach the nodes that an attempt begins with, and none that joins later"
        yield Problem("spec.launcher.steps", f"{words}; {remedy}, or leave steps out")
    if asked.on_node_loss == "Join" and spec.checkpoint is not None and spec.checkpoint.layout == "Shared":
        text = "while the attempt goes on nobody waits for the end of a node that is lost, which may still write"
        yield Problem("spec.checkpoint.layout", f"{text} to the one directory; {remedy}, or layout: PerAttempt")
    if spec.checkpoint is not None and spec.checkpoint.signal == "SIGTERM":
        text = (
            "ray.init() has the driver exit at SIGTERM; write SIGUSR1 and have the driver catch that, or leave it out"
        )
        yield Problem("spec.checkpoint.signal", f"{text} and call should_checkpoint() of lockstep_training")
    typed = [spec.command[0].rpartition("/")[2], *spec.command[1:2]]
    if typed[0] == "ray" and typed[1:] and typed[1] in ("start", "symmetric-run"):
        text = f"ray {typed[1]} starts Ray itself, which every node's worker does; write what it is to run, as"
        yield Problem("spec.command", f"{text} [python, train.py], or leave launcher out")
    for index, argument in enumerate(asked.arguments):
        why = _OURS.get(argument.partition("=")[0])
        if why is not None:
            yield Problem(f"spec.launcher.ray.arguments[{index}]", f"{argument.partition('=')[0]}: {why}; leave it out")
