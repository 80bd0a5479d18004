"""The part of `make fuzz` for every change, with the same cases each time; and that it finds what it is to find."""

from __future__ import annotations

import pytest

from fuzz.__main__ import run_case

SEED = 1
CASES = [("history", 32), ("specs", 16), ("reports", 8)]
PARTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("kind", "cases"), CASES)
def test_nothing_is_raised_nothing_grows_and_every_look_comes_to_rest(kind: str, cases: int, part: int) -> None:
    for number in range(part, cases, PARTS):
        case = f"{kind}:{SEED}:{number}"
        found = run_case(case).found
        assert not found, f"make fuzz CASE={case}\n" + "\n\n".join(f"{name}: {words}" for name, words in found.items())
