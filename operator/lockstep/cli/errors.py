"""What ends a command early: one clear line, a remedy, and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

NODES_ARE_THE_CLUSTERS = (
    "nodes belong to the whole cluster; ask an administrator, or see your run's with lockstep info RUN"
)
"""The remedy where nodes may not be read or changed."""


class ExitCode(IntEnum):
    """Exit codes of every verb; 2 is a mistake on the command line, 130 an interrupt."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    TIMED_OUT = 124


class CliError(Exception):
    """Told to the user as ``error: <message>``, with ``remedy`` on a line of its own."""

    def __init__(self, message: str, remedy: str = "", exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.exit_code = exit_code


class UsageError(CliError):
    """The command line does not make sense."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy, ExitCode.USAGE)


class Unreachable(CliError):  # noqa: N818 (a state of the world that some verbs wait out)
    """No answer from the API server."""


class NoApiServer(CliError):  # noqa: N818
    """Something else answers."""


class ApiServerError(CliError):
    """The API server said no. ``status`` is HTTP's, ``causes`` pairs of field and message."""

    def __init__(
        self,
        status: int,
        message: str,
        remedy: str = "",
        *,
        name: str = "",
        causes: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.name = name
        """The object it speaks of; empty when the whole resource is unknown."""
        self.causes = causes


def may_pass(error: CliError) -> bool:
    """Nobody answered, or a server that restarts, has lost its etcd or is asked too much: to be asked again."""
    if isinstance(error, ApiServerError):
        return error.status >= 500 or error.status == 429
    return isinstance(error, Unreachable)


@contextmanager
def if_forbidden(remedy: str) -> Iterator[None]:
    """Say what to do where rights lack."""
    try:
        yield
    except ApiServerError as error:
        if error.status == 403:
            error.remedy = remedy
        raise
