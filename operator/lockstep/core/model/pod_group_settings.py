"""Which PodGroups the operator's installation asks for, and which this API server serves."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from lockstep.core.model.settings import SettingsSection

VOLCANO = "scheduling.volcano.sh/v1beta1"


class PodGroupKind(StrEnum):
    """Whose PodGroups gangs get."""

    DISABLED = "Disabled"
    AUTO = "Auto"  # what is served: Kubernetes' own, then Volcano's, then none
    NATIVE = "Native"  # Kubernetes' own
    VOLCANO = "Volcano"


_VERSIONS = {
    PodGroupKind.DISABLED: (),
    # 1.36 has v1alpha2 behind gates, 1.37 is to have v1beta1. The fields we write are the same in both.
    PodGroupKind.NATIVE: ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2"),
    PodGroupKind.VOLCANO: (VOLCANO,),
}
_VERSIONS[PodGroupKind.AUTO] = _VERSIONS[PodGroupKind.NATIVE] + _VERSIONS[PodGroupKind.VOLCANO]
_REMEDIES = {
    PodGroupKind.NATIVE: (
        "switch on the feature gates GenericWorkload and GangScheduling and, on kube-apiserver, "
        "--runtime-config=scheduling.k8s.io/v1alpha2=true (Kubernetes 1.36)"
    ),
    PodGroupKind.VOLCANO: "install Volcano",
    PodGroupKind.AUTO: "switch on Kubernetes' own gang scheduling or install Volcano",
}


class PodGroupConfig(SettingsSection):
    """See docs/schedulers.md. ``queue`` is Volcano's, empty for its default."""

    kind: Annotated[PodGroupKind, WithJsonSchema({"enum": [*PodGroupKind], "type": "string"})] = PodGroupKind.DISABLED
    queue: str = Field(default="", max_length=63)
    scheduler_name: str = Field(default="volcano", min_length=1, max_length=63)


class PodGroupSettings(PodGroupConfig):
    """What decisions see of it. ``served``: what discovery found, of ``versions``."""

    served: tuple[str, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """API versions that would do, the best first."""
        return _VERSIONS[self.kind]

    @property
    def api_version(self) -> str:
        """The API version of PodGroups that new gangs get; empty: they get none."""
        return next((version for version in self.versions if version in self.served), "")

    @property
    def lack(self) -> str:
        """What was asked for and is not served, with the remedy; empty: nothing is amiss."""
        if self.kind not in _REMEDIES or self.api_version:
            return ""
        return (
            f"podGroups.kind of the operator's configuration is {self.kind}, and the API server serves no podgroups "
            f"in {' or '.join(self.versions)}: {_REMEDIES[self.kind]}, or set podGroups.kind to "
            + ("Disabled" if self.is_optional else "Auto or Disabled")
        )

    @property
    def is_optional(self) -> bool:
        """Gangs start without a group where none is served."""
        return self.kind in (PodGroupKind.AUTO, PodGroupKind.DISABLED)
