"""Lists in pages: however large the objects are that people write, no more than a page is held, and all are told of."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.controller.kube import pages
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.kube.pages import PAGE_SIZE, TooLongError, pages_of
from lockstep.controller.runtime.left_out import LeftOut, uid_in
from support.examples import examples

MOST, ALONE = 2_000, 4_000


class Collection:
    """Objects of so many bytes, as an API server lists them; ``largest`` of its answers that anybody held."""

    def __init__(self, sizes: list[int], metadata: int = 0) -> None:
        self.items = [_object(number, size, metadata) for number, size in enumerate(sizes)]
        self.largest = 0
        self.asked: list[int] = []

    async def read(self, params: Mapping[str, str], *, most: int, accept: str = "") -> bytes:
        begin, limit = int(params.get("continue", 0)), int(params["limit"])
        self.asked.append(limit)
        chosen = self.items[begin : begin + limit]
        if "PartialObjectMetadataList" in accept:
            chosen = [{"metadata": item["metadata"]} for item in chosen]
        more = str(begin + limit) if begin + limit < len(self.items) else ""
        body = orjson.dumps({"metadata": {"resourceVersion": "7", "continue": more}, "items": chosen})
        self.largest = max(self.largest, min(len(body), most))
        if len(body) > most:
            raise TooLongError("too long")
        return body


def _object(number: int, size: int, metadata: int) -> dict[str, Any]:
    meta = {"namespace": "team", "name": f"o{number}", "uid": f"u{number}", "x": "x" * metadata}
    return {"metadata": meta, "data": "x" * size}


@pytest.fixture(autouse=True, scope="module")
def small_pages() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "LONGEST_PAGE", MOST)
        patch.setattr(pages, "LONGEST_BODY", ALONE)
        yield


async def read(collection: Collection, left_out: LeftOut | None = None) -> tuple[list[str], list[str]]:
    """UIDs of what was read, and of what is there besides."""
    found, unread = list[str](), list[str]()
    async for page in pages_of(collection.read, "pods", {"labelSelector": "a=b"}, left_out or LeftOut()):
        found += [uid_in(item) for item in page.items]
        unread += page.unread
        assert page.resource_version == "7"
    return found, unread


async def test_a_page_of_usual_objects_is_read_at_once() -> None:
    collection = Collection([1] * 5)
    assert await read(collection) == ([f"u{n}" for n in range(5)], [])
    assert collection.asked == [PAGE_SIZE]


async def test_a_page_that_is_too_large_is_asked_for_again_with_fewer_objects_and_later_ones_with_more() -> None:
    collection = Collection([900] * 12 + [1] * 40)
    assert await read(collection) == ([f"u{n}" for n in range(52)], [])
    assert collection.largest <= MOST
    assert collection.asked[:6] == [500, 125, 31, 7, 1, 2]
    assert collection.asked[-1] > 8


async def test_an_object_that_is_too_large_alone_is_left_out_and_said_to_be_there() -> None:
    collection, left_out = Collection([1, 5_000, 1, 3_000, 1]), LeftOut()
    assert await read(collection, left_out) == (["u0", "u2", "u3", "u4"], ["u1"])
    assert left_out.counts == {"pods": 1}


async def test_where_not_even_its_metadata_is_to_be_had_there_is_no_list() -> None:
    with pytest.raises(UnreachableError):
        await read(Collection([1, 1], metadata=5_000))


@settings(max_examples=examples(100))
@example([9_000] * 4)
@given(st.lists(st.sampled_from([0, 100, 900, 1_500, 3_000, 9_000]), max_size=60))
async def test_whatever_their_sizes_every_object_is_told_of_once_and_no_answer_fills_the_memory(
    sizes: list[int],
) -> None:
    collection = Collection(sizes)
    found, unread = await read(collection)
    assert sorted(found + unread) == sorted(f"u{number}" for number in range(len(sizes)))
    assert set(unread) == {f"u{number}" for number, size in enumerate(sizes) if size == 9_000}
    assert collection.largest <= ALONE
    assert len(collection.asked) <= 2 * len(sizes) + 6
