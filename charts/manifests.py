"""The chart as plain manifests, for those without Helm."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

NAMESPACE = "lockstep-system"
OPERATOR_HEADER = """\
# Generated from charts/lockstep by `make generate`. Do not edit: the rules are in its templates/_rules.tpl.
# What an operator that is started by hand needs beside the CRDs in ../crds: its namespace, its service account with
# exactly the rights it uses, the roles that users get through view, edit and admin, and the PriorityClasses of pods.
"""
INSTALL_HEADER = """\
# Generated from charts/lockstep by `make generate`. Do not edit.
# Everything but the CRDs, with the chart's default values. Your image goes into a kustomization: docs/install.md.
"""
KUEUE_HEADER = """\
# Generated from charts/lockstep by `make generate`. Do not edit: the rules are in its templates/_rules.tpl.
# What the operator may do beside operator.yaml or install.yaml where Kueue admits runs; `kueue: {enabled: true}` in its
# configuration has it do so.
"""
POD_GROUPS_HEADER = """\
# Generated from charts/lockstep by `make generate`. Do not edit: the rules are in its templates/_rules.tpl.
# What the operator may do beside operator.yaml or install.yaml where `podGroups.kind` is in its configuration.
"""
SCALE_UP_HEADER = """\
# Generated from charts/lockstep by `make generate`. Do not edit: the rules are in its templates/_rules.tpl.
# What the operator may do beside operator.yaml or install.yaml where `scaleUp: {provisioningRequests: true}` is in its
# configuration.
"""
LOOK_UP_HEADER = """\
# Generated from charts/lockstep by `make generate`. Do not edit: the rules are in its templates/_rules.tpl.
# What the operator may do beside operator.yaml or install.yaml where `lookUp: {secrets: true}` is in its configuration.
"""
NAMESPACE_MANIFEST = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
_HELMS_OWN = re.compile(
    r"^(# Source: .*| *((annotations: \{)?helm\.sh/|app\.kubernetes\.io/managed-by: Helm).*)\n", re.M
)
RIGHTS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PriorityClass"})


def operator_manifest(helm: Path, chart: Path) -> str:
    """All but the operator itself and the CRDs."""
    return _joined(OPERATOR_HEADER, [NAMESPACE_MANIFEST, *_of_kinds(rendered(helm, chart), RIGHTS)])


def install_manifest(helm: Path, chart: Path) -> str:
    """All but the CRDs."""
    return _joined(INSTALL_HEADER, [NAMESPACE_MANIFEST, *rendered(helm, chart)])


def kueue_manifest(helm: Path, chart: Path) -> str:
    """The rights that come with Kueue."""
    return _joined(KUEUE_HEADER, _more(helm, chart, "config.kueue.enabled=true"))


def pod_groups_manifest(helm: Path, chart: Path) -> str:
    """The rights that come with PodGroups, of either kind."""
    return _joined(POD_GROUPS_HEADER, _more(helm, chart, "config.podGroups.kind=Auto"))


def scale_up_manifest(helm: Path, chart: Path) -> str:
    """The rights that come with ProvisioningRequests."""
    return _joined(SCALE_UP_HEADER, _more(helm, chart, "config.scaleUp.provisioningRequests=true"))


def look_up_manifest(helm: Path, chart: Path) -> str:
    """The right that comes with looking up Secrets."""
    return _joined(LOOK_UP_HEADER, _more(helm, chart, "config.lookUp.secrets=true"))


def _more(helm: Path, chart: Path, setting: str) -> list[str]:
    """The rights that a setting adds."""
    known = rendered(helm, chart)
    return [each for each in _of_kinds(rendered(helm, chart, setting), RIGHTS) if each not in known]


def rendered(helm: Path, chart: Path, *settings: str) -> list[str]:
    """The chart's objects, without what only Helm reads. Values that ``settings`` leave out are the default ones.
    Raises CalledProcessError."""
    command = [str(helm), "template", "lockstep", str(chart), "--namespace", NAMESPACE]
    given = [f"--set={setting}" for setting in ("crds.install=false", *settings)]
    answer = subprocess.run([*command, *given, "--skip-tests"], capture_output=True, text=True, check=True)
    text = _HELMS_OWN.sub("", answer.stdout)
    return [document for document in re.split(r"^---\n", text, flags=re.M) if document.strip()]


def _of_kinds(documents: Iterable[str], kinds: Collection[str]) -> list[str]:
    wanted = re.compile(rf"^kind: ({'|'.join(kinds)})$", re.M)
    return [document for document in documents if wanted.search(document)]


def _joined(header: str, documents: Iterable[str]) -> str:
    return header + "---\n".join(document.strip("\n") + "\n" for document in documents)
