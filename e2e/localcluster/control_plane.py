"""The components of the control plane: how each is called, and how one sees that it is healthy. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localcluster.state import LOOPBACK, Layout

# Stock limits (50 and 20 requests/s) throttle any gang; every figure measured here is measured with these.
CLIENT_QPS = 1000
SERVICE_RANGE = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc.cluster.local"

# Said wherever a cluster is described: each makes it differ from a production control plane.
SETTINGS = (
    f"kube-scheduler and kube-controller-manager: {CLIENT_QPS} requests/s to the API server",
    "etcd: --unsafe-no-fsync (a crash of this machine may lose data, a crash of etcd does not)",
    "kube-apiserver: RBAC on, audit of the operator's requests alone, if any, admission plugins as shipped",
)

# Kubernetes' own gang scheduling, alpha in 1.36: off as in a stock cluster unless it is asked for.
GANG_SCHEDULING = "feature gates GenericWorkload and GangScheduling on, scheduling.k8s.io/v1alpha2 served"
_GANG_GATES = {"--feature-gates": "GenericWorkload=true,GangScheduling=true"}
_GANG_API = {"--runtime-config": "scheduling.k8s.io/v1alpha2=true"}


# Of 5,000 nodes, leases renewed each 10 s are 500 writes a second: all that two cores can do.
_LONG_LEASE = 2400
_COLLECTED_AT = "400"
LARGE = (
    f"nodes renew their leases each {_LONG_LEASE // 4} s (stock: 10 s), and are given {_LONG_LEASE} s for it",
    f"every component runs with GOGC={_COLLECTED_AT} (stock: 100): more memory, less garbage collection",
    "kube-apiserver writes no audit log, as a stock one",
)


@dataclass(frozen=True)
class Component:
    """How one component is run. `health` is a URL that answers 200 when it does its work."""

    name: str
    arguments: Callable[[Layout], list[str]]
    health: Callable[[Layout], str]
    start_timeout: float = 60.0  # seconds until it must be healthy, generous for a loaded machine
    stop_grace: float = 10.0  # seconds between SIGTERM and SIGKILL


def settings(layout: Layout) -> tuple[str, ...]:
    """In what the cluster differs from a production control plane, in words."""
    gangs = (GANG_SCHEDULING,) if layout.gang_scheduling else ()
    return (*SETTINGS, *gangs, *(LARGE if layout.large else ()))


def environment(layout: Layout) -> dict[str, str]:
    """What a component finds in its environment beside the caller's."""
    return {"GOGC": _COLLECTED_AT} if layout.large else {}


def stages_file() -> Path:
    return Path(__file__).with_name("kwok.yaml")


def _etcd(layout: Layout) -> list[str]:
    clients = f"https://{LOOPBACK}:{layout.ports['etcd']}"
    peers = f"https://{LOOPBACK}:{layout.ports['etcd-peer']}"
    arguments = {
        "--name": "local",
        "--data-dir": layout.etcd_data,
        "--listen-client-urls": clients,
        "--advertise-client-urls": clients,
        "--listen-peer-urls": peers,
        "--initial-advertise-peer-urls": peers,
        "--initial-cluster": f"local={peers}",
        "--listen-metrics-urls": f"http://{LOOPBACK}:{layout.ports['etcd-metrics']}",
        "--quota-backend-bytes": 8 << 30,
        "--auto-compaction-mode": "revision",
        "--auto-compaction-retention": 10000,
        "--log-level": "warn",
    }
    for side in ("", "peer-"):
        arguments |= {
            f"--{side}cert-file": layout.pki / "etcd.crt",
            f"--{side}key-file": layout.pki / "etcd.key",
            f"--{side}trusted-ca-file": layout.pki / "etcd-ca.crt",
            f"--{side}client-cert-auth": "true",
        }
    return [*_flags(arguments), "--unsafe-no-fsync"]


def _apiserver(layout: Layout) -> list[str]:
    pki = layout.pki
    return _flags(
        {
            "--etcd-servers": f"https://{LOOPBACK}:{layout.ports['etcd']}",
            "--etcd-cafile": pki / "etcd-ca.crt",
            "--etcd-certfile": pki / "etcd-client.crt",
            "--etcd-keyfile": pki / "etcd-client.key",
            "--bind-address": "0.0.0.0" if layout.bind else LOOPBACK,
            "--advertise-address": layout.bind or LOOPBACK,
            "--secure-port": layout.ports["kube-apiserver"],
            "--tls-cert-file": pki / "server.crt",
            "--tls-private-key-file": pki / "server.key",
            "--client-ca-file": pki / "ca.crt",
            "--kubelet-client-certificate": pki / "kubelet-client.crt",
            "--kubelet-client-key": pki / "kubelet-client.key",
            "--kubelet-preferred-address-types": "InternalIP",
            "--service-account-issuer": ISSUER,
            "--service-account-key-file": pki / "service-account.crt",
            "--service-account-signing-key-file": pki / "service-account.key",
            "--service-cluster-ip-range": SERVICE_RANGE,
            "--authorization-mode": "Node,RBAC",
            "--allow-privileged": "true",
            "--endpoint-reconciler-type": "none",  # no Service proxy runs that would use the endpoint
            **({} if layout.large else _audit(layout)),
            **(_GANG_GATES | _GANG_API if layout.gang_scheduling else {}),
        }
    )


def _audit(layout: Layout) -> dict[str, object]:
    return {
        "--audit-policy-file": Path(__file__).with_name("audit.yaml"),
        "--audit-log-path": layout.audit_log,
        "--audit-log-maxsize": 200,  # MB
        "--audit-log-maxbackup": 1,
    }


def _scheduler(layout: Layout) -> list[str]:
    return _flags(_client_of_api_server(layout, "kube-scheduler", "scheduler"))


def _controller_manager(layout: Layout) -> list[str]:
    return _flags(
        {
            **_client_of_api_server(layout, "kube-controller-manager", "controller-manager"),
            "--use-service-account-credentials": "true",
            "--service-account-private-key-file": layout.pki / "service-account.key",
            "--root-ca-file": layout.pki / "ca.crt",
            # Nodes bring their own pod address ranges, there is no cloud, and no kubelet reads the cache
            # times that the ttl controller writes to every node.
            "--controllers": "*,-node-ipam-controller,-cloud-node-lifecycle-controller,-ttl-controller",
            **({"--node-monitor-grace-period": f"{_LONG_LEASE}s"} if layout.large else {}),
        }
    )


def _client_of_api_server(layout: Layout, component: str, identity: str) -> dict[str, object]:
    return {
        "--kubeconfig": layout.kubeconfig(identity),
        "--bind-address": LOOPBACK,
        "--secure-port": layout.ports[component],
        "--tls-cert-file": layout.pki / "server.crt",
        "--tls-private-key-file": layout.pki / "server.key",
        "--leader-elect": "false",
        "--kube-api-qps": CLIENT_QPS,
        "--kube-api-burst": CLIENT_QPS,
        **(_GANG_GATES if layout.gang_scheduling else {}),
    }


def _kwok(layout: Layout) -> list[str]:
    return _flags(
        {
            "--kubeconfig": layout.kubeconfig("kwok"),
            "--config": stages_file(),
            "--server-address": f"{LOOPBACK}:{layout.ports['kwok']}",
            "--v": "WARN",  # at INFO it logs every renewal of every node's lease
            **({"--node-lease-duration-seconds": _LONG_LEASE} if layout.large else {}),
        }
    )


def _flags(arguments: dict[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in arguments.items()]


def _http(port: str, path: str) -> Callable[[Layout], str]:
    return lambda layout: f"http://{LOOPBACK}:{layout.ports[port]}{path}"


def _https(port: str, path: str) -> Callable[[Layout], str]:
    return lambda layout: f"https://{LOOPBACK}:{layout.ports[port]}{path}"


# In the order they are started; each needs those before it.
COMPONENTS = {
    component.name: component
    for component in (
        Component("etcd", _etcd, _http("etcd-metrics", "/health")),
        # Asked to stop it drains for minutes while clients hold watches, as those of a control plane always do.
        Component("kube-apiserver", _apiserver, _https("kube-apiserver", "/readyz"), stop_grace=2.0),
        Component("kube-scheduler", _scheduler, _https("kube-scheduler", "/healthz")),
        Component("kube-controller-manager", _controller_manager, _https("kube-controller-manager", "/healthz")),
        Component("kwok", _kwok, _http("kwok", "/healthz")),
    )
}


def component_named(name: str) -> Component:
    """The component of that name; `kube-` may be left out. Raises KeyError."""
    return COMPONENTS[name if name in COMPONENTS else f"kube-{name}"]
