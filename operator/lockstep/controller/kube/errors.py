"""What can go wrong with a request to the API server, by what is known of it afterwards."""

import re

import aiohttp
import msgspec

from lockstep.api.base import nesting

_RETRY_AFTER_MAX = 30.0
_BY_AUTHORIZER = re.compile(r" cannot \w+ resource ")


class KubeError(Exception):
    """Something the API server said, or its silence."""

    @property
    def words(self) -> str:
        """What it said, for people."""
        return str(self)

    @property
    def is_verdict(self) -> bool:
        """The server has judged the object, and will judge it the same a moment later."""
        return False


class ApiError(KubeError):
    """The server refused: nothing was done. ``reason`` is the server's (NotFound, Conflict, Invalid, …)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def words(self) -> str:
        """The server's own."""
        return self.message or str(self)

    @property
    def lacks_right(self) -> bool:
        """We may not do such a thing at all, whatever the object is."""
        return self.status == 403 and _BY_AUTHORIZER.search(self.message) is not None

    @property
    def is_verdict(self) -> bool:
        """As of every error.

        Not so when the server was overwhelmed, did not know us, or had a quota changed under its hands (a Conflict).
        """
        return 400 <= self.status < 500 and self.status not in (401, 408, 429) and self.reason != "Conflict"

    @property
    def is_of_one_object(self) -> bool:
        """Others may well be answered: it was judged, or what the server does with it fails, as decryption or a webhook
        may."""
        return self.is_verdict or self.status == 500


class DroppedError(ApiError):
    """What was written was not stored whole, with no word of it: the definitions are older than the operator."""


class UnreachableError(KubeError):
    """No answer, and nothing was done: a read, or a write that was never sent."""


def says_absent(error: ApiError, name: str) -> bool:
    """There is no object ``name``: not merely no such kind, as while a CustomResourceDefinition is away."""
    return error.status == 404 and f'"{name}" not found' in error.message


class UnknownOutcome(KubeError):  # noqa: N818 - not an error yet
    """A write whose answer never came: it may have been done, or may be yet, until ``settles_at``.

    Only a read begun after ``settles_at`` (Unix seconds) that does not show the write proves that it
    did not happen.
    """

    def __init__(self, message: str, settles_at: float) -> None:
        super().__init__(message)
        self.settles_at = settles_at


class ErrorStatus(msgspec.Struct):
    """A ``Status`` object, as errors come in replies and in watches."""

    code: int = 0
    reason: str = ""
    message: str = ""


_errors = msgspec.json.Decoder(ErrorStatus)


def refusal_of(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    """What an answer with an error code says."""
    try:
        status = nesting.decode(_errors, body)
    except msgspec.DecodeError:  # a proxy's page, not the API server's words
        status = ErrorStatus(message=body[:200].decode(errors="replace"))
    header = response.headers.get("Retry-After", "")
    retry_after = float(header) if header.isdecimal() else 0.0
    if not retry_after and response.status == 429:
        retry_after = 1.0
    return ApiError(
        response.status,
        status.reason or response.reason or "",
        status.message,
        min(retry_after, _RETRY_AFTER_MAX),
    )
