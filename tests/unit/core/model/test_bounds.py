"""What of a worker's words is taken: the last value within each bound, and the first beyond it."""

from typing import Any

import msgspec
import pytest

from lockstep.core.model import bounds


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (bounds.Name, ["n", "n" * 253], ["", "n" * 254, 1]),
        (bounds.Word, ["", "w" * 64], ["w" * 65, None]),
        (bounds.Text, ["", "t" * 65_536], ["t" * 65_537]),
        (bounds.Path, ["", "p" * 4096], ["p" * 4097]),
        (bounds.Slot, [0, 65_535], [-1, 65_536, "0", 1.5]),
        (bounds.Count, [0, 2**31 - 1], [-1, 2**31, True]),
        (bounds.Step, [0, 2**53], [-1, 2**53 + 1]),
        (bounds.Port, [0, 65_535], [-1, 65_536]),
        (bounds.Moment, [0.0, 2.0**40, 7], [-0.5, 2.0**41, float("nan"), float("inf"), "now"]),
        (bounds.Tier, ["local", "shared"], ["moon", ""]),
    ],
)
def test_the_bounds_themselves_are_taken_and_nothing_beyond(kind: Any, taken: list[Any], refused: list[Any]) -> None:
    assert [msgspec.convert(value, kind) for value in taken] == taken
    for value in refused:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, kind)
