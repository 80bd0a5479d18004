"""What the operator lately said of each run, for the web page."""

from lockstep.controller.runtime.recent_events import KEPT_OF_A_RUN, MOST_RUNS, RecentEvents
from lockstep.core.model.plan import Event


def event(reason: str, note: str = "") -> Event:
    return Event("Normal", reason, "Act", note)


def test_events_come_oldest_first_and_a_repeated_one_counts_up() -> None:
    recent = RecentEvents()
    for at, reason in enumerate(("Started", "NodeLost", "NodeLost", "NodeLost", "Started")):
        recent.keep("run", event(reason), float(at))
    assert [(said.reason, said.at, said.count) for said in recent.for_run("run")] == [
        ("Started", 0.0, 1),
        ("NodeLost", 3.0, 3),
        ("Started", 4.0, 1),
    ]
    assert recent.for_run("another") == ()


def test_no_run_has_more_than_its_last_words() -> None:
    recent = RecentEvents()
    for number in range(200):
        recent.keep("run", event("Reason", str(number)), float(number))
    assert [said.note for said in recent.for_run("run")] == [str(number) for number in range(200 - KEPT_OF_A_RUN, 200)]


def test_runs_of_which_nothing_was_said_for_long_are_forgotten_first() -> None:
    recent = RecentEvents()
    recent.keep("first", event("Started"), 0.0)
    recent.keep("second", event("Started"), 0.0)
    for number in range(MOST_RUNS - 2):
        recent.keep(f"run-{number}", event("Started"), 1.0)
    recent.keep("first", event("Ended"), 2.0)
    recent.keep("one more", event("Started"), 3.0)
    assert recent.for_run("second") == ()
    assert len(recent.for_run("first")) == 2
