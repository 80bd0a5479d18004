"""Names that may have been meant."""

import pytest

from lockstep.core.model.near_names import MOST_COMPARED, nearest

THERE = ("research", "reservations", "high", "low", "team-data", "checkpoints", "A100", "H100")


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("reserch", ("research",)),
        ("Research", ("research",)),
        ("hgih", ("high",)),
        ("a100", ("A100",)),  # and not H100, which is but like it
        ("A10", ("A100",)),
        ("chekpoints", ("checkpoints",)),
        ("checkpoint", ("checkpoints",)),
        ("team-dta", ("team-data",)),
        ("scratch", ()),
        ("", ()),
    ],
)
def test_a_slip_of_the_hand_finds_the_name_and_another_word_finds_none(wanted: str, near: tuple[str, ...]) -> None:
    assert nearest(wanted, THERE) == near


def test_the_likest_come_first_and_no_more_than_three() -> None:
    names = [f"data-{number}" for number in range(9)]
    assert nearest("data-11", names) == ("data-1", "data-0", "data-2")
    assert nearest("data-1", names)[0] == "data-1"


def test_of_very_many_names_so_many_are_compared() -> None:
    taken: list[str] = []

    def names() -> object:
        for number in range(10 * MOST_COMPARED):
            taken.append(str(number))
            yield str(number)

    nearest("7", names())  # type: ignore[arg-type]
    assert len(taken) == MOST_COMPARED
