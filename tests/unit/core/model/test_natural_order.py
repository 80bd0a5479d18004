"""Names in the order that people expect."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model.natural_order import natural_key


def test_digits_compare_as_numbers() -> None:
    names = ["rack-10", "rack-2", "rack-2a", "rack", "Rack-2", "2", "10"]
    assert sorted(names, key=natural_key) == ["2", "10", "Rack-2", "rack", "rack-2", "rack-2a", "rack-10"]


@given(st.lists(st.text("ab019-", max_size=6), unique=True))
def test_distinct_names_have_distinct_keys(names: list[str]) -> None:
    assert len({natural_key(name) for name in names}) == len(names)
