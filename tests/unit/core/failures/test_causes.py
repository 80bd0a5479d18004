"""Which of all evidence is the cause: the earliest, unless something explains it."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lockstep.core.failures.causes import (
    CASCADE_SECONDS,
    LEAVING_SECONDS,
    TIED_SECONDS,
    TORN_DOWN_SECONDS,
    Cause,
    Evidence,
    first_cause,
)
from lockstep.core.failures.signs import Reading
from lockstep.core.model.reasons import AttemptCause


def seen(
    kind: AttemptCause, slot: int, at: float, *, lost: bool = False, exited: bool = True, **traits: object
) -> Cause:
    evidence = Evidence(kind.value, slot, f"n{slot}", at, "words", "root")
    return Cause(evidence, Reading(kind, "root", **traits), lost=lost, exited=exited and not lost)  # type: ignore[arg-type]


def crash(slot: int, at: float, **traits: object) -> Cause:
    return seen(AttemptCause.APPLICATION, slot, at, **traits)


def complaint(slot: int, at: float) -> Cause:
    return crash(slot, at, symptom=True)


def lost_node(slot: int, at: float) -> Cause:
    return seen(AttemptCause.NODE_LOST, slot, at, lost=True)


def ended_pod(kind: AttemptCause, slot: int, at: float) -> Cause:
    return replace(seen(kind, slot, at, lost=True), dated=True)


def fault(slot: int, at: float) -> Cause:
    return seen(AttemptCause.HARDWARE, slot, at, exited=False)


@pytest.mark.parametrize(
    ("found", "first", "tied", "victims"),
    [
        ([crash(1, 5.0), crash(0, 4.0), crash(2, 6.0)], 0, (), (1, 2)),
        # A complaint about a peer, heard of first.
        ([complaint(0, 4.0), crash(1, 4.5)], 1, (), (0,)),
        ([complaint(0, 4.0), crash(1, 4.0 + CASCADE_SECONDS + 1)], 0, (), (1,)),
        ([complaint(1, 4.05), complaint(0, 4.0)], 0, (1,), ()),
        # Nobody can tell which was first: one that says why goes before one that only ended.
        ([crash(0, 4.0, bare=True), crash(1, 4.05)], 1, (0,), ()),
        ([crash(0, 4.0, bare=True), crash(1, 4.2)], 0, (), (1,)),
        # The last heartbeat of a lost node may well be younger than its peers' ends.
        ([crash(0, 4.0), lost_node(1, 6.0)], 1, (), (0,)),
        ([crash(0, 4.0), lost_node(1, 4.0 + CASCADE_SECONDS + 1)], 0, (), (1,)),
        ([seen(AttemptCause.DISRUPTION, 0, 4.0, lost=True), lost_node(1, 6.0)], 1, (), (0,)),
        ([crash(0, 4.0), seen(AttemptCause.OUT_OF_MEMORY, 1, 3.0, lost=True)], 1, (), (0,)),
        # A pod that says when it ended is no cause of what lies clearly before; one driven away may take a moment.
        ([crash(0, 4.4), ended_pod(AttemptCause.UNKNOWN, 1, 4.0)], 1, (), (0,)),
        ([crash(0, 4.4), ended_pod(AttemptCause.UNKNOWN, 1, 4.4 + TORN_DOWN_SECONDS)], 1, (), (0,)),
        ([crash(0, 4.4), ended_pod(AttemptCause.UNKNOWN, 1, 5.0)], 0, (), (1,)),
        ([complaint(0, 4.4), ended_pod(AttemptCause.UNKNOWN, 1, 5.0)], 1, (), (0,)),
        ([crash(0, 4.4), ended_pod(AttemptCause.DISRUPTION, 1, 6.0)], 1, (), (0,)),
        ([crash(0, 4.4), ended_pod(AttemptCause.DISRUPTION, 1, 4.5 + LEAVING_SECONDS)], 0, (), (1,)),
        # A fault of the machine, whose rank has not even ended.
        ([crash(0, 4.0), complaint(2, 4.0), fault(1, 1.0)], 1, (), (0, 2)),
        ([crash(0, 4.0), seen(AttemptCause.HARDWARE, 1, 4.5, weak=True)], 0, (), (1,)),
        ([crash(0, 4.0), crash(1, 4.0 + TIED_SECONDS / 2), crash(2, 5.0)], 0, (1,), (2,)),
        # Within the tie one that only complains is no equal.
        ([complaint(0, 4.0), crash(1, 4.0 + TIED_SECONDS / 2)], 1, (), (0,)),
    ],
)
def test_the_first_of_all(found: list[Cause], first: int, tied: tuple[int, ...], victims: tuple[int, ...]) -> None:
    cause = first_cause(found)
    assert (cause.slot, cause.evidence.tied, cause.victims) == (first, tied, victims)


def test_a_node_is_suspected_only_when_it_alone_was_first() -> None:
    assert first_cause([crash(0, 4.0), crash(1, 5.0)]).points_at_node
    assert not first_cause([crash(0, 4.0), crash(1, 4.01)]).points_at_node
    assert not first_cause([complaint(0, 4.0)]).points_at_node
    assert not first_cause([crash(0, 4.0, by_nature=True)]).points_at_node
    assert not first_cause([seen(AttemptCause.STORAGE, 0, 4.0)]).points_at_node


ENDS = st.builds(
    seen,
    st.sampled_from([AttemptCause.APPLICATION, AttemptCause.HARDWARE, AttemptCause.NODE_LOST, AttemptCause.DISRUPTION]),
    st.integers(0, 5),
    st.floats(0.0, 100.0),
    lost=st.booleans(),
    symptom=st.booleans(),
)


@given(st.lists(ENDS, min_size=1, max_size=8, unique_by=lambda cause: cause.slot))
def test_everybody_who_ended_is_the_first_or_tied_or_a_victim_in_whatever_order_it_was_heard(
    found: list[Cause],
) -> None:
    first = first_cause(found)
    assert {first.slot, *first.evidence.tied, *first.victims} >= {c.slot for c in found if c.lost or c.exited}
    assert not {first.slot, *first.evidence.tied} & set(first.victims)
    assert first_cause(list(reversed(found))) == first


@given(st.lists(ENDS, min_size=1, max_size=6, unique_by=lambda cause: cause.slot), st.floats(-1e6, 1e6))
def test_only_differences_of_time_matter(found: list[Cause], shift: float) -> None:
    rounded = [replace(c, evidence=replace(c.evidence, at=float(round(c.at)))) for c in found]
    moved = [replace(c, evidence=replace(c.evidence, at=c.at + round(shift))) for c in rounded]
    assert first_cause(moved).slot == first_cause(rounded).slot
