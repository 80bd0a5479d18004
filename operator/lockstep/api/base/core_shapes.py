"""The parts of a spec that Kubernetes users already know: env, envFrom, volumes. Same names, same meaning."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lockstep.api.base.schema import AsWritten, MapList, ObjectName, Rule, Size, SpecModel

Key = Annotated[str, Field(min_length=1, max_length=253)]


class KeyRef(SpecModel):
    """One key of a ConfigMap or a Secret."""

    name: ObjectName
    """Name of the ConfigMap or Secret."""
    key: Key
    """The key in it."""
    optional: bool | None = None
    """Whether the run may start without it."""


class FieldRef(SpecModel):
    """A field of the pod."""

    field_path: Annotated[str, Field(min_length=1, max_length=256)]
    """Path of the field, e.g. spec.nodeName."""
    api_version: Annotated[str, Field(max_length=32)] | None = None
    """Version of the schema the path is written in; v1 when left out."""


class ResourceFieldRef(SpecModel):
    """A resource of the container."""

    resource: Annotated[str, Field(min_length=1, max_length=253)]
    """The resource, e.g. limits.memory."""
    container_name: Annotated[str, Field(max_length=63)] | None = None
    """The container; the training container when left out."""
    divisor: Annotated[str, Field(max_length=32)] | None = None
    """Unit of the value, e.g. 1Gi."""


class EnvSource(SpecModel):
    """Where the value of a variable comes from."""

    field_ref: FieldRef | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldRef | None = None
    """A resource of the container."""
    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap."""
    secret_key_ref: KeyRef | None = None
    """A key of a Secret."""

    cross_field_rules: ClassVar = (
        Rule(
            "[has(self.fieldRef), has(self.resourceFieldRef), has(self.configMapKeyRef), "
            "has(self.secretKeyRef)].filter(set, set).size() == 1",
            "name exactly one source: fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef",
        ),
    )


class EnvVar(SpecModel):
    """One environment variable of the training processes."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Rule(
            "!self.startsWith('LOCKSTEP_')",
            "names starting with LOCKSTEP_ are set by Lockstep at every start; choose another name",
        ),
        Rule(
            "!(self in ['MASTER_ADDR', 'MASTER_PORT', 'NNODES', 'NODE_RANK'])",
            "MASTER_ADDR, MASTER_PORT, NNODES and NODE_RANK are set by Lockstep at every start; leave this one out",
        ),
    ]
    """Name. LOCKSTEP_* and the rendezvous variables are Lockstep's to set."""
    value: Annotated[str, Field(max_length=32768)] | None = None
    """Value; $(NAME) expands to variables defined before it."""
    value_from: EnvSource | None = None
    """Source of the value, instead of `value`."""

    cross_field_rules: ClassVar = (
        Rule("!(has(self.value) && has(self.valueFrom))", "set either value or valueFrom, not both"),
    )


class EnvFromRef(SpecModel):
    """A whole ConfigMap or Secret as environment."""

    name: ObjectName
    """Name of the ConfigMap or Secret."""
    optional: bool | None = None
    """Whether the run may start without it."""


class EnvFrom(SpecModel):
    """Every key of a ConfigMap or Secret becomes a variable."""

    prefix: Annotated[str, Field(max_length=253)] | None = None
    """Put in front of every key."""
    config_map_ref: EnvFromRef | None = None
    """The ConfigMap."""
    secret_ref: EnvFromRef | None = None
    """The Secret."""

    cross_field_rules: ClassVar = (
        Rule(
            "has(self.configMapRef) != has(self.secretRef)",
            "name exactly one source: configMapRef or secretRef",
        ),
    )


class KeyToPath(SpecModel):
    """One key as one file."""

    key: Key
    """The key."""
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """The file, relative to the mount path."""
    mode: Annotated[int, Field(ge=0, le=0o777)] | None = None
    """Mode bits of the file."""


class EmptyDirSource(SpecModel):
    """An empty directory that lives as long as the pod."""

    medium: Literal["", "Memory"] | None = None
    """Memory for a tmpfs; the node's disk when left out."""
    size_limit: Size | None = None
    """Most bytes it may hold."""


class HostPathSource(SpecModel):
    """A path of the node. Refused unless the operator's podPolicy names it or the namespace is opened for it."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path on the node."""
    type: (
        Literal[
            "",
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ]
        | None
    ) = None
    """What must be there."""


class ConfigMapSource(SpecModel):
    """The keys of a ConfigMap as files."""

    name: ObjectName
    """Name of the ConfigMap."""
    items: Annotated[tuple[KeyToPath, ...], Field(max_length=64)] = ()
    """Which keys; all when left out."""
    default_mode: Annotated[int, Field(ge=0, le=0o777)] | None = None
    """Mode bits of the files."""
    optional: bool | None = None
    """Whether the run may start without it."""


class SecretSource(SpecModel):
    """The keys of a Secret as files."""

    secret_name: ObjectName
    """Name of the Secret."""
    items: Annotated[tuple[KeyToPath, ...], Field(max_length=64)] = ()
    """Which keys; all when left out."""
    default_mode: Annotated[int, Field(ge=0, le=0o777)] | None = None
    """Mode bits of the files."""
    optional: bool | None = None
    """Whether the run may start without it."""


class ClaimSource(SpecModel):
    """A PersistentVolumeClaim of the run's namespace."""

    claim_name: ObjectName
    """Name of the claim; its access mode must allow every node of the gang."""
    read_only: bool | None = None
    """Whether the volume is attached read-only."""


class Volume(SpecModel):
    """A volume and where the training container finds it. Other kinds of volume go through `podTemplate`."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=63),
        Rule("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", "write lower case letters, digits and '-'"),
        Rule("!self.startsWith('lockstep-')", "names starting with lockstep- are Lockstep's; choose another"),
    ]
    """Name, a DNS label."""
    mount_path: Annotated[
        str,
        Field(min_length=1, max_length=512),
        Rule(
            "self.startsWith('/') && !self.contains(':')",
            "write an absolute path without ':', e.g. /data",
        ),
        Rule(
            "self != '/lockstep' && !self.startsWith('/lockstep/') && self != '/dev/shm'",
            "/lockstep and /dev/shm are mounted by Lockstep; choose another path (shmSize sizes /dev/shm)",
        ),
    ]
    """Where the container finds it, e.g. /data."""
    sub_path: Annotated[str, Field(max_length=512)] | None = None
    """Path inside the volume to mount instead of its root."""
    read_only: bool = False
    """Whether the container may only read."""
    empty_dir: EmptyDirSource | None = None
    """An empty directory per pod."""
    host_path: HostPathSource | None = None
    """A path of the node; needs a namespace that allows it."""
    config_map: ConfigMapSource | None = None
    """A ConfigMap as files."""
    secret: SecretSource | None = None
    """A Secret as files."""
    projected: AsWritten | None = None
    """Several sources in one directory, as in core/v1."""
    persistent_volume_claim: ClaimSource | None = None
    """A claim of the namespace."""

    cross_field_rules: ClassVar = (
        Rule(
            "[has(self.emptyDir), has(self.hostPath), has(self.configMap), has(self.secret), "
            "has(self.projected), has(self.persistentVolumeClaim)].filter(set, set).size() == 1",
            "name exactly one source: emptyDir, hostPath, configMap, secret, projected or persistentVolumeClaim",
        ),
    )


class LocalObjectRef(SpecModel):
    """Another object of the run's namespace."""

    name: ObjectName
    """Its name."""


EnvList = Annotated[tuple[EnvVar, ...], MapList(), Field(max_length=256)]
EnvFromList = Annotated[tuple[EnvFrom, ...], Field(max_length=32)]
VolumeList = Annotated[tuple[Volume, ...], MapList(), Field(max_length=32)]
PullSecretList = Annotated[tuple[LocalObjectRef, ...], MapList(), Field(max_length=8)]
