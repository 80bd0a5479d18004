"""Since when a run has been edited, however often."""

from dataclasses import replace

from lockstep.controller.store.edits import Edits
from lockstep.core.model.snapshot import EDIT_GRACE, RunView
from support.admission import run
from support.manual_clock import ManualClock


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.edits = Edits(self.clock)
        self.run = run("a")

    def edit(self) -> None:
        self.change(generation=self.run.generation + 1)

    def change(self, **changes: object) -> None:
        new: RunView = replace(self.run, **changes)  # type: ignore[arg-type]
        self.edits.run_changed(self.run, new)
        self.run = new

    @property
    def since(self) -> float | None:
        return self.edits.current().get(self.run.uid)


async def test_who_edits_again_and_again_gains_no_time_by_it() -> None:
    desk = Desk()
    assert desk.since is None
    desk.edit()
    first = desk.clock.now()
    for _ in range(5):
        await desk.clock.advance(EDIT_GRACE - 1)
        desk.edit()
        assert desk.since == first


async def test_after_a_pause_the_next_edit_is_a_first_one() -> None:
    desk = Desk()
    desk.edit()
    await desk.clock.advance(EDIT_GRACE)
    desk.edit()
    assert desk.since == desk.clock.now()
    await desk.clock.advance(EDIT_GRACE)
    assert desk.since is None


def test_a_run_that_is_new_or_gone_or_whose_status_changes_is_not_edited() -> None:
    desk = Desk()
    desk.edits.run_changed(None, desk.run)
    desk.change(resource_version="8")
    assert desk.since is None
    desk.edit()
    desk.edits.run_changed(desk.run, None)
    assert desk.since is None
