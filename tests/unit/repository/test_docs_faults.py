"""docs/faults.md against the menu that it is made from, and the menu against itself."""

from pathlib import Path

from faults.menu import FAULTS, INCLUDED, MENU, NOT_SERVED, PHASES, Fault, Phase
from faults.page import page

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"


def test_the_page_is_made_from_the_menu() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make generate"


def test_every_fault_meets_every_phase_or_it_is_said_why_not() -> None:
    served = [(dish.fault, dish.phase) for dish in MENU]
    assert len(set(served)) == len(served)
    assert not set(served) & set(NOT_SERVED)
    assert {*served, *NOT_SERVED} == {(fault, phase) for fault in Fault for phase in Phase}
    assert set(FAULTS) == set(Fault)
    assert set(PHASES) == set(Phase)


def test_the_short_menu_has_every_fault_and_every_phase() -> None:
    short = [dish for dish in MENU if dish.covering]
    assert {dish.fault for dish in short} == set(Fault) - INCLUDED
    assert {dish.phase for dish in short} == set(Phase)
