"""One node, two nodes."""

import pytest

from lockstep.core.model.plural import plural


@pytest.mark.parametrize(("count", "words"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_a_count_agrees_with_its_word(count: int, words: str) -> None:
    assert plural(count, "node") == words
