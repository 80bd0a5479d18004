"""Objects that a run names and nobody makes for it, and what was found of them. Of their content nobody reads more than
the names of its entries."""

from dataclasses import dataclass
from enum import StrEnum


class ObjectKind(StrEnum):
    """What is looked up before a run is accepted."""

    CLAIM = "PersistentVolumeClaim"
    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"
    SERVICE_ACCOUNT = "ServiceAccount"
    STORAGE_CLASS = "StorageClass"

    @property
    def is_namespaced(self) -> bool:
        """It is of the run's namespace; else of the whole cluster."""
        return self is not ObjectKind.STORAGE_CLASS


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object that the field of a spec names; with ``key``, an entry that it is to have."""

    kind: ObjectKind
    name: str
    field: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class MissingObject:
    """One that is not there. ``near``: names that are, and that may have been meant. Of one with a ``key`` the object
    is there, and has no such entry."""

    named: NamedObject
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What is known of the objects that a run names; of the others, that they are there.

    ``unknown``: nothing may be held against them, as they could not be looked up.
    """

    missing: tuple[MissingObject, ...] = ()
    unknown: tuple[NamedObject, ...] = ()
