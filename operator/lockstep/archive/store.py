"""The object store, as much of it as the archive needs, with errors in its own words.

obstore reads credentials from the environment and from the cloud's own identity services; nothing here touches them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore as Backend
from obstore.store import S3Store, from_url

from lockstep.archive.outcomes import (
    ARCHIVE_CORRUPT,
    BUCKET_MISSING,
    CREDENTIALS_REFUSED,
    STORE_REFUSED,
    STORE_UNAVAILABLE,
    ArchiveError,
    FailureReason,
    presentable,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

SCHEMES = ("s3", "gs", "az")
RETRY_SECONDS = 180.0  # of one request; an outage longer than that ends the job, which is tried again later
REQUEST_TIMEOUT = "15min"  # of one part on a very slow line
STALLED_AFTER = "60s"
DELETIONS = 16  # at once: a checkpoint of 10 TiB has 160,000 parts

_BUCKET_WORDS = ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "bucket does not exist")
_CREDENTIAL_WORDS = (
    "AccessDenied",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UserNotFound",
)
# Where clouds answer for the identity of a machine: a question there means that no credentials were given.
_IDENTITY_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata.goog")
_STATUS = re.compile(r"status code: (\d{3})")
_XML_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing. `modified` in Unix seconds on the store's clock."""

    name: str
    bytes: int
    modified: float


class ObjectStore:
    """Objects below one URI. Every call may block, may be made from any thread, and raises ArchiveError."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @classmethod
    def open(cls, uri: str, endpoint: str = "", retry_seconds: float = RETRY_SECONDS) -> ObjectStore:
        """`uri` as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Nothing is contacted yet.

        `endpoint` is the URL of an S3-compatible server; AWS_ENDPOINT_URL of the environment when empty.
        AWS_CA_BUNDLE, a file or the PEM text itself, is trusted beside the public authorities.
        """
        if urlsplit(uri).scheme not in SCHEMES or not urlsplit(uri).netloc:
            raise ArchiveError(STORE_REFUSED, f"{uri!r} is not s3://bucket/prefix, gs://bucket/prefix or az://…")
        client: ClientConfig = {"timeout": REQUEST_TIMEOUT, "read_timeout": STALLED_AFTER}
        config: S3Config = {}
        if uri.startswith("s3://"):
            endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
            if endpoint:
                config["endpoint"] = endpoint
                client["allow_http"] = endpoint.startswith("http://")
        bundle = os.environ.get("AWS_CA_BUNDLE", "")
        if bundle:
            client["root_certificate"] = bundle if bundle.startswith("-----") else Path(bundle).read_bytes()
        retry: RetryConfig = {
            "max_retries": 1_000_000,  # the time alone counts
            "retry_timeout": timedelta(seconds=retry_seconds),
            "backoff": {
                "init_backoff": timedelta(milliseconds=250),
                "max_backoff": timedelta(seconds=10),
                "base": 2,
            },
        }
        with _in_own_words():
            if uri.startswith("s3://"):
                return cls(S3Store.from_url(uri, config=config, client_options=client, retry_config=retry))
            return cls(from_url(uri, client_options=client, retry_config=retry))

    def put(self, name: str, body: bytes) -> None:
        """One object, all or nothing."""
        with _in_own_words():
            obstore.put(self._backend, name, body, use_multipart=False)

    def put_new(self, name: str, body: bytes) -> bool:
        """One object unless there is one of that name: then False."""
        try:
            with _in_own_words():
                obstore.put(self._backend, name, body, mode="create", use_multipart=False)
        except _ExistsAlreadyError:
            return False
        return True

    def get(self, name: str, most: int) -> bytes | None:
        """All of an object; None when there is none. One of more than `most` bytes is refused before it is read."""
        try:
            with _in_own_words(of_one=True):
                found = obstore.get(self._backend, name)
                if found.meta["size"] > most:
                    raise ArchiveError(ARCHIVE_CORRUPT, f"{name} has {found.meta['size']} bytes, more than {most}")
                return bytes(found.bytes())
        except _NoSuchObjectError:
            return None

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """All objects below `prefix`, in no order."""
        with _in_own_words():
            for batch in obstore.list(self._backend, prefix):
                for found in batch:
                    yield StoredObject(found["path"], found["size"], found["last_modified"].timestamp())

    def children(self, prefix: str) -> list[str]:
        """Names of what looks like directories right below `prefix`, sorted."""
        with _in_own_words():
            found = obstore.list_with_delimiter(self._backend, prefix)
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, names: Iterable[str]) -> None:
        """Objects that are gone already are no error. One by one, as not every server takes several at once."""
        left = iter(names)
        while some := list(islice(left, 1000)):
            with ThreadPoolExecutor(DELETIONS, thread_name_prefix="delete") as pool:
                going = [pool.submit(self._delete, name) for name in some]
                try:
                    for gone in going:
                        gone.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise

    def _delete(self, name: str) -> None:
        with suppress(_NoSuchObjectError), _in_own_words(of_one=True):
            obstore.delete(self._backend, name)


class _NoSuchObjectError(Exception):
    """There is no object of that name."""


class _ExistsAlreadyError(Exception):
    """There is an object of that name."""


@contextmanager
def _in_own_words(*, of_one: bool = False) -> Iterator[None]:
    """`of_one`: the question is about one object, which may not be there."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as error:
        raise _ExistsAlreadyError from error
    except (BaseError, FileNotFoundError, ValueError) as error:
        text = str(error)
        if of_one and _is_missing_object(error, text):
            raise _NoSuchObjectError from error
        raise ArchiveError(_reason(error, text), _sentence(text)) from error


def _is_missing_object(error: Exception, text: str) -> bool:
    others = (*_BUCKET_WORDS, *_CREDENTIAL_WORDS)
    return isinstance(error, FileNotFoundError) and not any(word in text for word in others)


def _reason(error: Exception, text: str) -> FailureReason:
    status = _STATUS.search(text)
    code = int(status[1]) if status else 0
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in (401, 403)
    if refused or any(word in text for word in (*_IDENTITY_SERVICES, *_CREDENTIAL_WORDS)):
        return CREDENTIALS_REFUSED
    if isinstance(error, FileNotFoundError) or any(word in text for word in _BUCKET_WORDS):
        return BUCKET_MISSING
    if code in (408, 409, 429) or code >= 500 or (not code and not isinstance(error, ValueError)):
        return STORE_UNAVAILABLE
    return STORE_REFUSED


def _sentence(text: str) -> str:
    """What the store said, without the library's debugging output."""
    if any(service in text for service in _IDENTITY_SERVICES):
        return "no credentials: the secret gives none, and the machine has no identity of its own"
    first = text.partition("\n\nDebug source:")[0]
    said = _XML_MESSAGE.search(first)
    status = _STATUS.search(first)
    if said:
        return f"the store says: {said[1]}" + (f" (HTTP {status[1]})" if status else "")
    return f"the store cannot be reached or refuses: {presentable(first)[:300]}"
