"""Lists, in pages of so many objects and so many bytes at most: what people write must not fill our memory.

A page that is too large is asked for again with fewer objects on it. Of an object that is too large by itself only its
metadata is read: it is left out, and said to be there. So no list is taken for complete that is not.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

import aiohttp
import msgspec

from lockstep.api.base import nesting
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.kube.watch_lines import LONGEST_LINE, TOO_LONG
from lockstep.controller.runtime.left_out import CUT, LeftOut, name_in, uid_in

T = TypeVar("T")
PAGE_SIZE = 500
LONGEST_PAGE = 2**25
"""Bytes. The largest objects that an API server takes as it comes are twenty of them; 500 usual pods are a third."""
LONGEST_BODY = LONGEST_LINE
"""Bytes of any other answer, one object among them, as in a watch."""
_FEWER, _MORE = 4, 2  # a page that is too large is asked for with a quarter, and the next one with twice as many again
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class LongBodyError(aiohttp.ClientError):
    """An answer that is longer than anybody wants it."""


class TooLongError(UnreachableError):
    """The same of a read."""


async def body_of(response: aiohttp.ClientResponse, most: int = LONGEST_BODY) -> bytes:
    """The body of an answer. Raises LongBodyError, once it is longer than ``most``, and others of aiohttp."""
    parts, size = list[bytes](), 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most:
            response.close()
            raise LongBodyError(f"the answer has more than {most} bytes")
        parts.append(chunk)
    return b"".join(parts)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list. ``items`` are JSON texts."""

    metadata: _ListMeta
    items: list[msgspec.Raw] = []
    unread: list[str] = []  # UIDs of what is on it and too large to be read

    @property
    def resource_version(self) -> str:
        """Version of the whole list, the same on every page."""
        return self.metadata.resource_version

    def leave_out(self) -> None:
        """Keep of its items no more than which they are."""
        self.unread = [uid_in(item) for item in self.items]
        self.items = []


class Read(Protocol):
    """Reads the collection. Raises TooLongError where the answer has more than ``most`` bytes, and any KubeError."""

    async def __call__(self, params: Mapping[str, str], *, most: int, accept: str = "") -> bytes:
        """``accept``: the media type, if it is not JSON as it comes."""


_pages = msgspec.json.Decoder(Page)


async def pages_of(
    read: Read, kind: str, selectors: Mapping[str, str], left_out: LeftOut
) -> AsyncGenerator[Page, None]:
    """A whole collection, consistently. Raises any KubeError, TooLongError where not even an object's metadata is to
    be had."""
    size, params = PAGE_SIZE, dict(selectors)
    while True:
        asked = {"limit": str(size), **params}
        try:
            page = _page(await read(asked, most=LONGEST_PAGE if size > 1 else LONGEST_BODY), kind, left_out)
        except TooLongError:
            if size > 1:
                size = max(1, size // _FEWER)
                continue
            page = _page(await read(asked, most=LONGEST_PAGE, accept=METADATA_LIST), kind, left_out)
            for item in page.items:
                left_out.note(kind, name_in(item), "", TOO_LONG)
            page.leave_out()
        yield page
        if not page.metadata.continue_:
            return
        params["continue"] = page.metadata.continue_
        if not page.unread:  # beside one that is too large there is often another
            size = min(PAGE_SIZE, _MORE * size)


def _page(reply: bytes, kind: str, left_out: LeftOut) -> Page:
    cut = list[bool]()
    page = read_as(_pages, reply, f"list of {kind}", partial(cut.append, True))
    for item in page.items if cut else ():
        if nesting.CUT_OFF in bytes(item):
            left_out.note(kind, name_in(item), hash(bytes(item)), CUT)
    return page


def read_as(
    decoder: msgspec.json.Decoder[T], text: bytes, what: str, when_cut: Callable[[], object] = lambda: None
) -> T:
    """Raises UnreachableError: what answers so is no API server."""
    try:
        return nesting.decode(decoder, text, when_cut)
    except msgspec.DecodeError as error:
        raise UnreachableError(f"{what}: the answer cannot be read: {error}") from error
