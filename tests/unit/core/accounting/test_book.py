"""The account as text in status: what one operator wrote, another goes on from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.accounting.book import Book, new_book, read, write
from lockstep.core.accounting.goodput import Bucket, GoodputAccount, GoodputStage, Mark
from lockstep.core.accounting.usage import BudgetUse, GpuUsage
from lockstep.core.checkpoints.cadence import SaveCost
from lockstep.core.failures.failure_rate import Exposure

amounts = st.integers(0, 2**45)


seen = st.floats(0.0, 1e12)


books = st.builds(
    Book,
    st.builds(
        GoodputAccount,
        submitted=amounts,
        since=amounts,
        stage=st.sampled_from(GoodputStage),
        closed=st.tuples(*[amounts] * len(Bucket)),
        marks=st.lists(st.builds(Mark, amounts, amounts), min_size=1, max_size=32).map(tuple),
        first_step=st.none() | amounts,
        broken_at=st.none() | amounts,
        unrepaired=st.booleans(),
        failures=amounts,
        steps_lost=amounts,
        recoveries=st.lists(amounts, max_size=32).map(tuple),
    ),
    st.builds(
        GpuUsage, amounts, amounts, st.sampled_from(["", "H100"]), st.lists(st.tuples(st.text(), amounts)).map(tuple)
    ),
    st.builds(Exposure, seen, seen, seen),
    amounts,
    amounts,
    amounts,
    st.sampled_from(BudgetUse),
    amounts,
    amounts,
    amounts,
    st.none() | st.builds(SaveCost, seen, seen, amounts),
    st.none() | st.builds(SaveCost, seen, seen, amounts),
)


@given(books)
def test_a_book_reads_as_it_was_written(book: Book) -> None:
    assert read(write(book)) == book


@pytest.mark.parametrize("text", ["", "x", "[]", "null", "{}", '{"v":0}', write(new_book(0.0)).replace("queue", "?")])
def test_what_is_no_book_is_not_taken_for_one(text: str) -> None:
    assert read(text) is None
