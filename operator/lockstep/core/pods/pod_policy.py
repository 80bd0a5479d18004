"""Powers over a node that users may ask for: by Pod Security's level Baseline, and what an administrator adds to it.

The operator makes the pods, so policies that look at who makes a pod see the operator and not the user. What a
user could not be given without an administrator is therefore refused here, whoever else looks at the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.model.settings import PodPolicy

# Pod Security Standards, Baseline.
_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
    | {"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)
_SYSCTLS = frozenset(
    {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports"}
    | {"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout"}
    | {"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time"}
    | {"net.ipv4.tcp_syncookies", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
)
_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_HOOKS = ("postStart", "preStop")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_STRICT_LEVELS = ("baseline", "restricted")


@dataclass(frozen=True, slots=True)
class AllowedPowers:
    """What the users of one namespace may ask for."""

    policy: PodPolicy | None
    """None: not known here. What a policy could allow is then not refused."""
    everything: bool = False
    level: str = ""
    """Pod Security level that the namespace enforces."""

    @classmethod
    def for_namespace(cls, policy: PodPolicy | None, namespace_labels: Mapping[str, str]) -> AllowedPowers:
        """By the labels of the namespace, which only an administrator may set."""
        level = namespace_labels.get(names.LABEL_POD_SECURITY, "")
        opened = namespace_labels.get(names.LABEL_ALLOW_PRIVILEGED) == "true"
        return cls(policy, opened and level not in _STRICT_LEVELS, level)

    def gives(self, setting: str, name: str) -> bool:
        """Whether podPolicy allows what the namespace does not."""
        return self.level not in _STRICT_LEVELS and (self.policy is None or name in getattr(self.policy, setting))

    def refusal(self, field: str, what: str, setting: str = "") -> Problem:
        """In words that name who can help; ``setting`` of podPolicy could."""
        if self.level in _STRICT_LEVELS:
            why = f"is beyond Pod Security's level {self.level}, which the namespace enforces; leave it out"
        else:
            or_setting = f", or podPolicy.{setting} of the operator" if setting else ""
            why = f'needs a namespace labelled {names.LABEL_ALLOW_PRIVILEGED}: "true"{or_setting}'
            why += "; ask an administrator or leave it out"
        return Problem(field, f"{what} {why}")


def remedy_for(refusal: str, spec: TrainingRunSpec) -> str:
    """What helps where Pod Security refused what Lockstep itself put into the pod; empty where nothing of that is."""
    if "violates PodSecurity" not in refusal:
        return ""
    local = spec.checkpoint is not None and spec.checkpoint.local is not None
    remedies = [
        "set spec.network: Pod" if spec.network == "Host" and "hostNetwork" in refusal else "",
        "leave out spec.checkpoint.local" if local and names.LOCAL_VOLUME in refusal else "",
    ]
    found = " and ".join(filter(None, remedies))
    return f"; {found}, or ask for a namespace of another level (docs/security.md)" if found else ""


def host_path_problems(volume: Mapping[str, Any], path: str, grant: AllowedPowers) -> Iterator[Problem]:
    """Yield the refusal of a volume that is a path of the node, unless it is given."""
    source = volume.get("hostPath")
    if source is None or grant.everything:
        return
    wanted = str(source.get("path", "")) if isinstance(source, Mapping) else ""
    if not grant.gives("host_paths", wanted.rstrip("/")):
        yield grant.refusal(f"{path}.hostPath", "a path of the node", "hostPaths")


def account_problems(account: object, path: str, grant: AllowedPowers) -> Iterator[Problem]:
    """Yield the refusal of a service account that gangs may not run as; the namespace's default one they may."""
    allowed = grant.policy.service_accounts if grant.policy is not None else None
    if isinstance(account, str) and account != "default" and allowed is not None and account not in allowed:
        choices = f"use one of {', '.join(sorted(set(allowed)))}" if allowed else "leave it out"
        yield Problem(path, f"{account} is not in podPolicy.serviceAccounts of the operator; {choices}")


def archive_account_problems(spec: TrainingRunSpec, grant: AllowedPowers) -> Iterator[Problem]:
    """The same of the account as which archive jobs act on objects that the run names."""
    archive = spec.checkpoint.archive if spec.checkpoint is not None else None
    if archive is not None:
        yield from account_problems(archive.service_account_name, "spec.checkpoint.archive.serviceAccountName", grant)


def power_problems(
    metadata: Mapping[str, Any], pod: Mapping[str, Any], path: str, grant: AllowedPowers
) -> Iterator[Problem]:
    """Yield what the template of a pod asks for and the namespace does not give. ``path`` is the template's."""
    yield from account_problems(pod.get("serviceAccountName"), f"{path}.spec.serviceAccountName", grant)
    yield from account_problems(pod.get("serviceAccount"), f"{path}.spec.serviceAccount", grant)
    if grant.everything:
        return
    for key, value in _object(metadata.get("annotations")).items():
        if key.startswith(_APPARMOR_ANNOTATION) and not str(value).startswith(("runtime/default", "localhost/")):
            yield grant.refusal(f"{path}.metadata.annotations[{key}]", "a container without AppArmor")
    spec = f"{path}.spec"
    if pod.get("hostIPC"):
        yield grant.refusal(f"{spec}.hostIPC", "the node's shared memory")
    context = _object(pod.get("securityContext"))
    yield from _context_problems(context, f"{spec}.securityContext", grant)
    for index, sysctl in enumerate(_objects(context.get("sysctls"))):
        name = str(sysctl.get("name"))
        if name not in _SYSCTLS and not grant.gives("sysctls", name):
            yield grant.refusal(f"{spec}.securityContext.sysctls[{index}]", f"the sysctl {name}", "sysctls")
    for index, volume in enumerate(_objects(pod.get("volumes"))):
        yield from host_path_problems(volume, f"{spec}.volumes[{index}]", grant)
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(_objects(pod.get(kind))):
            yield from _container_problems(container, f"{spec}.{kind}[{index}]", grant)


def _container_problems(container: Mapping[str, Any], path: str, grant: AllowedPowers) -> Iterator[Problem]:
    context, where = _object(container.get("securityContext")), f"{path}.securityContext"
    yield from _context_problems(context, where, grant)
    if context.get("privileged"):
        yield grant.refusal(f"{where}.privileged", "a privileged container")
    if context.get("procMount") not in (None, "", "Default"):
        yield grant.refusal(f"{where}.procMount", "an unmasked /proc")
    added = _object(context.get("capabilities")).get("add")
    for name in added if isinstance(added, list) else ():
        if not isinstance(name, str):
            yield Problem(f"{where}.capabilities.add", "is a list of names; write - SYS_PTRACE, for example")
        elif name not in _CAPABILITIES and not grant.gives("capabilities", name):
            yield grant.refusal(f"{where}.capabilities.add", f"the capability {name}", "capabilities")
    for index, port in enumerate(_objects(container.get("ports"))):
        if port.get("hostPort"):
            yield grant.refusal(f"{path}.ports[{index}].hostPort", "a port of the node")
    calls = {f"lifecycle.{hook}": _object(_object(container.get("lifecycle")).get(hook)) for hook in _HOOKS}
    calls |= {probe: _object(container.get(probe)) for probe in _PROBES}
    for name, call in calls.items():
        for how in ("httpGet", "tcpSocket"):
            if _object(call.get(how)).get("host"):
                yield grant.refusal(f"{path}.{name}.{how}.host", "a request of the node's to another host")


def _context_problems(context: Mapping[str, Any], path: str, grant: AllowedPowers) -> Iterator[Problem]:
    """Yield what pods and containers alike may ask for in their securityContext."""
    if _object(context.get("windowsOptions")).get("hostProcess"):
        yield grant.refusal(f"{path}.windowsOptions.hostProcess", "a process of the node")
    linux = _object(context.get("seLinuxOptions"))
    if linux.get("user") or linux.get("role") or str(linux.get("type") or "") not in _SELINUX_TYPES:
        yield grant.refusal(f"{path}.seLinuxOptions", "another SELinux user, role or type")
    for name, what in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if _object(context.get(name)).get("type") == "Unconfined":
            yield grant.refusal(f"{path}.{name}.type", f"a container without {what}")


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
