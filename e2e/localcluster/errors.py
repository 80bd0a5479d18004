"""The errors a caller of this package may see, all with a message fit for a terminal."""


class LocalClusterError(Exception):
    """Something the local cluster was asked to do did not happen; the message says what and why."""


class BuildError(LocalClusterError):
    """A component could not be built; the message ends with the compiler's last lines."""


class StartError(LocalClusterError):
    """A component did not become healthy; the message ends with its last log lines."""


class NotRunningError(LocalClusterError):
    """There is no cluster in the given state directory."""


class ApiError(LocalClusterError):
    """The API server refused a request or did not answer.

    `status` is the HTTP status, 0 when there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubectlError(LocalClusterError):
    """kubectl ended with a non-zero exit code; the message is what it wrote to stderr."""
