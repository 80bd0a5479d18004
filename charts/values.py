"""What may be set when the chart is installed: the one definition of values.yaml, its schema and its table."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from shapes import (
    Affinity,
    Annotations,
    Cidr,
    LabelKey,
    Labels,
    Name,
    OptionalName,
    Peer,
    PrometheusDuration,
    Quantity,
)

_OF_THE_CHART = "^(lockstep\\.dev/.*|app\\.kubernetes\\.io/(name|component))$"
"""Keys that the operator's own pods are selected by, and restarted by."""
_OTHERS = Field(json_schema_extra={"propertyNames": {"not": {"pattern": _OF_THE_CHART}}})
_RESERVED = "^(lockstep\\.dev/.*|app\\.kubernetes\\.io/managed-by)$"
"""Keys with a meaning to the operator, and the one that Helm writes anew whatever it finds there."""
_FREE = Field(json_schema_extra={"propertyNames": {"not": {"pattern": _RESERVED}}})
CHART_OWNED = frozenset(
    {
        "namespace",
        "namespaces",
        "identity",
        "leaseName",
        "workerService",
        "workerAddress",
        "workerListen",
        "workerPort",
        "metricsListen",
        "metricsPort",
        "web",
    }
)
"""Settings of the operator that the chart makes itself, as its other objects have to agree with them."""


class Section(BaseModel):
    """A mapping of values; what it does not know is refused. A field's docstring is its comment everywhere."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", use_attribute_docstrings=True)


class Image(Section):
    """The operator's image."""

    repository: Annotated[str, Field(min_length=1, pattern=r"^[^\s:@]+(:[0-9]+/[^\s:@]+)?$")] = "lockstep-operator"
    """Registry and name, without a tag. The chart of a release names that release's; else build
    it from the Dockerfile and push it to your registry."""
    tag: Annotated[str, Field(pattern="^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")] = ""
    """The chart's appVersion when empty."""
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    """Pins the image; wins over the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"


class SecretReference(Section):
    """A Secret by name."""

    name: Annotated[OptionalName, Field(min_length=1)]


class Crds(Section):
    """CustomResourceDefinitions. They are upgraded with the chart, and kept when it is uninstalled."""

    install: bool = True
    """`false` where somebody else applies them, from crds/ of the same version."""


class Rbac(Section):
    """Who may do what."""

    user_roles: bool = True
    """Add runs to the cluster's roles view, edit and admin."""


class ServiceAccount(Section):
    """The operator's account."""

    annotations: Annotations = {}


class PriorityClass(Section):
    """The class of gang pods, named by `config.priorityClass`, lockstep-gang by default. It never preempts."""

    create: bool = True
    """This one, and lockstep-placeholder for what only holds a place for a gang (docs/autoscaling.md)."""
    value: Annotated[int, Field(ge=-2147483648, le=1000000000)] = 1000
    """Cannot be changed later: Kubernetes takes no other value for a class that exists."""


class History(Section):
    """Where the records of ended attempts and runs go beside the log."""

    claim_name: OptionalName = ""
    """A PersistentVolumeClaim of the release's namespace. With one there is one replica, and an upgrade ends the old
    operator first."""


class Web(Section):
    """The web page (docs/web.md): rack map, queues and runs, by the cluster's own tokens and rights."""

    enabled: bool = False
    """Serve it in the operator's pods, on their loopback address: `kubectl port-forward` alone gets there."""
    expose: bool = False
    """Serve it over TLS to everybody, as the Service lockstep-operator-web: for an Ingress or Gateway of yours."""
    hosts: list[Annotated[str, Field(min_length=1)]] = Field([], examples=[["lockstep.example.com"]])
    """Further names for its certificate, which is by the operator's own CA."""


class DisruptionBudget(Section):
    """With two replicas or more: one at a time."""

    enabled: bool = True


class NetworkPolicy(Section):
    """Who may reach the operator, and whom it may reach."""

    enabled: bool = False
    metrics_from: list[Peer] = Field([], examples=[[{"namespaceSelector": {"matchLabels": {"a": "b"}}}]])
    """Peers that may read metrics; everybody when empty. The worker API is open to all: gangs may use any network, and
    every request is authenticated."""
    api_server_cidrs: list[Cidr] = Field([], examples=[["10.0.0.1/32"]])
    """Where the API server is; anywhere when empty."""
    api_server_ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1)] = [443, 6443]


class PriorityAndFairness(Section):
    """A priority level of its own at the API server, and the leaders' level for the operator's lease."""

    enabled: bool = False
    shares: Annotated[int, Field(ge=1, le=1000)] = 40
    """Its shares of the API server's concurrency. All of Kubernetes' own levels have 245."""


class ServiceMonitor(Section):
    """For the Prometheus operator."""

    enabled: bool = False
    interval: PrometheusDuration = "30s"
    """In Prometheus' own form: 30s, 1m, 1m30s."""
    labels: Annotated[Labels, _FREE] = {}
    """They come in place of the chart's own of the same key."""


class PrometheusRule(Section):
    """Alerts (docs/runbooks.md), for the Prometheus operator."""

    enabled: bool = False
    labels: Annotated[Labels, _FREE] = {}
    """They come in place of the chart's own of the same key."""
    runbooks: Annotated[str, Field(pattern=r"^(https?://\S+)?$")] = ""
    """Where docs/runbooks.md is published; becomes each alert's runbook_url."""
    gpus: bool = False
    """Rules that tell the metrics of NVIDIA's DCGM exporter by run (docs/dashboards.md), and alerts on them."""


class Dashboards(Section):
    """Grafana dashboards as ConfigMaps, for its sidecar."""

    enabled: bool = False
    labels: Annotated[Labels, _FREE] = {"grafana_dashboard": "1"}
    """They come in place of the chart's own of the same key."""


class Resources(Section):
    """Of the operator's container."""

    requests: dict[str, Quantity] = {"cpu": "500m", "memory": "512Mi"}
    limits: dict[str, Quantity] = {"memory": "2Gi"}
    """No CPU limit: throttled, it could miss the renewal of its lease."""


class Toleration(Section):
    """Of a taint of nodes."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int = 0


class TopologySpreadConstraint(Section):
    """Without a `labelSelector` it is of the operator's pods."""

    max_skew: Annotated[int, Field(ge=1)]
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: dict[str, Any] = {}
    match_label_keys: list[LabelKey] = []
    min_domains: Annotated[int, Field(ge=1)] = 1
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"


class Values(Section):
    """Everything that may be set."""

    image: Image = Image()
    image_pull_secrets: list[SecretReference] = Field([], examples=[[{"name": "registry"}]])
    config: dict[str, Any] = Field(
        {},
        examples=[
            {
                "mode": "Active",
                "localStorage": {"nvme": "/mnt/nvme/lockstep"},
                "gpuTypes": {"H100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
                "accelerators": [{"resource": "nvidia.com/gpu"}, {"resource": "amd.com/gpu"}],
                "topologyLevels": {"rack": "topology.kubernetes.io/rack"},
                "breaker": {"nodeShare": 0.1},
            }
        ],
    )
    """The operator's configuration: every field of docs/configuration.md but those that the chart has to make. A change
    of `mode` counts within a minute or two. Any other restarts the operator, which disturbs nothing that runs."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    namespaces: Annotated[list[Name], Field(json_schema_extra={"uniqueItems": True})] = Field(
        [], examples=[["team-a", "team-b"]]
    )
    """Namespaced install: only in these may the operator create and delete what runs need, and only their runs are
    looked after. It still reads nodes and pods of the whole cluster and patches nodes: nodes are shared. All namespaces
    when empty."""
    replicas: Annotated[int, Field(ge=1, le=3)] = 2
    """One leads, the others are warm and take over within seconds; workers are sent to the one that leads. With
    `history.claimName` there is always one."""
    crds: Crds = Crds()
    rbac: Rbac = Rbac()
    service_account: ServiceAccount = ServiceAccount()
    priority_class: PriorityClass = PriorityClass()
    history: History = History()
    web: Web = Web()
    resources: Resources = Resources()
    priority_class_name: OptionalName = ""
    """Of the operator's own pods, e.g. system-cluster-critical."""
    node_selector: Labels = {}
    tolerations: list[Toleration] = []
    affinity: Affinity = {}
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    """Replicas are kept on different nodes where possible; what is written here comes instead."""
    pod_labels: Annotated[Labels, _OTHERS] = {}
    pod_annotations: Annotated[Annotations, _OTHERS] = {}
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
    network_policy: NetworkPolicy = NetworkPolicy()
    priority_and_fairness: PriorityAndFairness = PriorityAndFairness()
    service_monitor: ServiceMonitor = ServiceMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()
    dashboards: Dashboards = Dashboards()
    global_: Annotated[dict[str, Any], Field(alias="global")] = {}
    """Not used; charts that include this one may set it."""
