"""Ray: one cluster of all nodes for each attempt; the command is the driver, on rank 0, once all nodes have joined.

Ports, token and directory are the attempt's. Ray is started by the worker on each node, and never by the command.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.pods.launchers.rendezvous import Rendezvous

_OURS = {
    **dict.fromkeys(("--head", "--address", "--node-ip-address", "--port", "--block"), "each attempt has its own"),
    **dict.fromkeys(("--dashboard-host", "--dashboard-port"), "each attempt has its own, told in status.start"),
    "--temp-dir": "it lies in the attempt's scratch, and goes with it",
}


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Further arguments of ``ray start``, and how many words stay in front of it."""
    asked = spec.launcher.ray
    return {"entrypoint": len(spec.entrypoint), "arguments": list(asked.arguments) if asked is not None else []}


def deciding_ranks(world_size: int) -> range:
    """Rank 0, where the driver is."""
    return range(1)


def steps(spec: TrainingRunSpec) -> bool:
    """Only where they are asked for: Ray reaches its nodes by itself."""
    return spec.launcher.steps


def environment(rendezvous: Rendezvous) -> Mapping[str, str]:
    """Nothing: only a worker starts Ray."""
    return {}


def command(spec: TrainingRunSpec, rendezvous: Rendezvous) -> Sequence[str]:
    """As typed."""
    return (*spec.entrypoint, *spec.command)


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """What starts a second Ray inside this one, or takes what is the attempt's."""
    return list(_problems(spec))


def _problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    words = [spec.command[0].rpartition("/")[2], *spec.command[1:2]]
    if words[0] == "ray" and words[1:] and words[1] in ("start", "symmetric-run"):
        text = f"ray {words[1]} starts Ray itself, which every node's worker does; write what it is to run, as"
        yield Problem("spec.command", f"{text} [python, train.py], or leave launcher out")
    for index, argument in enumerate(spec.launcher.ray.arguments if spec.launcher.ray is not None else ()):
        why = _OURS.get(argument.partition("=")[0])
        if why is not None:
            yield Problem(f"spec.launcher.ray.arguments[{index}]", f"{argument.partition('=')[0]}: {why}; leave it out")
