"""Errors with a message fit for a terminal, and those that keep a container from starting."""

from localcluster.errors import LocalClusterError


class ProcessNodesError(LocalClusterError):
    """Something the process nodes were asked to do did not happen; the message says what and why."""


class ContainerConfigError(Exception):
    """A container's environment can't be made yet (CreateContainerConfigError); tried again."""


class MountError(Exception):
    """A volume can't be made yet (the pod stays in ContainerCreating); tried again."""


class StartError(Exception):
    """The command could not be executed. Final, as with a real container runtime."""
