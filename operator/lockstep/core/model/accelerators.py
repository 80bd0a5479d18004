"""Which resources count as GPUs, whatever their maker, and what a run asks of them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from lockstep.api.base import names
from lockstep.api.base.quantities import parse_quantity
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.model.snapshot import NodeView

Accelerators = Mapping[str, tuple[str, ...]]
"""Resources that count as GPUs, the most wanted first, each with the labels by which a node says that it has some,
offered or not: ``KEY`` with any value but those of ``SAYS_NO``, or ``KEY=VALUE``."""

SAYS_NO = ("", "0", "false", "False", "none")
"""Values of a label with which a node says that it has none."""

ACCELERATORS: Accelerators = {
    names.GPU_RESOURCE: (
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.product",
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "cloud.google.com/gke-accelerator",
        "k8s.amazonaws.com/accelerator",
        "kubernetes.azure.com/accelerator=nvidia",
        "karpenter.azure.com/sku-gpu-manufacturer=nvidia",
        "karpenter.k8s.aws/instance-gpu-manufacturer=nvidia",
    ),
    "amd.com/gpu": (
        "amd.com/gpu.device-id",
        "amd.com/gpu.family",
        "amd.com/gpu.product-name",
        "feature.node.kubernetes.io/amd-gpu",
        "karpenter.k8s.aws/instance-gpu-manufacturer=amd",
    ),
    "habana.ai/gaudi": (
        "intel.feature.node.kubernetes.io/gaudi",
        "karpenter.k8s.aws/instance-accelerator-manufacturer=habana",
    ),
    "google.com/tpu": ("cloud.google.com/gke-tpu-accelerator",),
    "gpu.intel.com/i915": ("gpu.intel.com/product",),
    "gpu.intel.com/xe": (),
    "aws.amazon.com/neuron": ("karpenter.k8s.aws/instance-accelerator-manufacturer=aws",),
}


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs of every node of a gang."""

    count: int | None = 0
    """None: all that the node has, however many these are."""
    resources: tuple[str, ...] = (names.GPU_RESOURCE,)
    """What they may be: the first of these that any node has which the run may use."""
    named: bool = False
    """The spec says which: nodes without are no answer, even where no node has any."""

    @property
    def resource(self) -> str:
        """What they are, as long as no nodes are known."""
        return self.resources[0]


NO_GPUS = GpuRequest()


def gpu_request(spec: TrainingRunSpec, known: Collection[str]) -> GpuRequest:
    """What ``spec`` asks for, where ``known`` resources count as GPUs."""
    asked, said = spec.resources_per_node, spec.gpu_resource
    counted = (said,) if said is not None else tuple(name for name in known if name in asked)[:1]
    count = spec.gpus_per_node
    if counted and counted[0] in asked and not count:
        count = ceil(parse_quantity(asked[counted[0]]))
    elif count is None and said is None and any(is_of_a_gpu(name, known) for name in asked):
        count = 0  # parts of them, or those of a maker that is not counted
    return GpuRequest(count, counted or (*known,) or (names.GPU_RESOURCE,), named=bool(counted))


def held_gpus(resolved: ResolvedStatus) -> GpuRequest:
    """What a gang has."""
    return GpuRequest(resolved.gpus_per_node, (resolved.gpu_resource,), named=True)


def without_gpus(asked: Mapping[str, str], gpus: GpuRequest) -> dict[str, str]:
    """``asked`` but for what ``gpus`` says of it."""
    return {name: amount for name, amount in asked.items() if name not in gpus.resources[:1] or not gpus.named}


def is_of_a_gpu(resource: str, known: Collection[str]) -> bool:
    """Who asks for it does not mean whole GPUs beside it: nvidia.com/mig-1g.10gb, nvidia.com/gpu.shared, …"""
    return resource.endswith("/gpu") or any(is_part(resource, accelerator) for accelerator in known)


def is_part(resource: str, accelerator: str) -> bool:
    """A node offers ``resource`` in the place of a whole ``accelerator``, as device plugins name it."""
    if resource.startswith(accelerator):
        return resource != accelerator
    return resource.startswith(f"{accelerator.partition('/')[0]}/mig-")


def gpus_of(allocatable: Mapping[str, int], known: Iterable[str]) -> tuple[str, int]:
    """What a node offers: the first of the ``known`` that it has any of, and how many; ("", 0): none."""
    for name in known:
        number = allocatable.get(name, 0)
        if number > 0:
            return name, number
    return "", 0


def remembering(node: NodeView, before: NodeView | None) -> NodeView:
    """``node`` with what it was known to have ``before``, as the same object of the API."""
    if before is None or before.uid != node.uid:
        return node
    had = {name: number for name, number in before.allocatable.items() if "/" in name and number}
    lost = {
        name: number
        for name, number in {**had, **before.withheld}.items()
        if not node.allocatable.get(name, 0) and number > node.withheld.get(name, -1)
    }
    return replace(node, withheld={**node.withheld, **lost}) if lost else node


def withheld_by(node: NodeView, known: Accelerators) -> str:
    """Which of the ``known`` a node has, and offers none of it, nor parts; empty: none."""
    for whole, labels in known.items():
        if any(number > 0 and (name == whole or is_part(name, whole)) for name, number in node.allocatable.items()):
            return ""
        if whole in node.withheld or says(node.labels, labels):
            return whole
    return ""


def says(labels: Mapping[str, str], signs: Collection[str]) -> bool:
    """A node with ``labels`` says by one of the ``signs`` that it has some; see ``Accelerators``."""
    for sign in signs:
        key, _, wanted = sign.partition("=")
        value = labels.get(key, "")
        if value == wanted if wanted else value not in SAYS_NO:
            return True
    return False
