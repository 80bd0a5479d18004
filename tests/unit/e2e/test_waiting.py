"""Waiting ends with what was waited for, or says what was seen last."""

from __future__ import annotations

import pytest

from harness.waiting import WaitedInVain, wait_for


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", [], "there"])
    assert wait_for("a value", lambda: next(values), seconds=5, every=0) == "there"


def test_a_wait_in_vain_says_for_what_and_what_was_seen_last() -> None:
    with pytest.raises(WaitedInVain, match=r"waited 0 s in vain: four ready; last seen: 3/4"):
        wait_for("four ready", lambda: False, seconds=0, last_seen=lambda: "3/4")


def test_what_is_true_at_the_deadline_is_not_in_vain() -> None:
    assert wait_for("a truth", lambda: True, seconds=0)


def test_a_field_that_is_not_there_yet_is_waited_for_and_said_if_it_never_comes() -> None:
    objects = iter([{}, {"reason": "TestOnly"}])
    assert wait_for("a reason", lambda: next(objects)["reason"], seconds=5, every=0) == "TestOnly"
    with pytest.raises(WaitedInVain, match="in vain: a reason; last seen: no 'reason'"):
        wait_for("a reason", lambda: {}["reason"], seconds=0)
