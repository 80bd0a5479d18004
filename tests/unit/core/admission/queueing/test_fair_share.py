"""Usage that decays, and what it leaves of everybody's share."""

import json
import math
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base import names
from lockstep.api.recovery_status import RecoveryStatus
from lockstep.api.run_status import LeavingStatus, ResolvedStatus
from lockstep.core.admission.queueing.fair_share import (
    MAX_BYTES,
    MAX_OF_NAMESPACE,
    MAX_ROWS,
    OTHERS,
    REST,
    ChargedUsage,
    UsageBook,
    admissible,
    shares,
)
from lockstep.core.admission.queueing.order import LONGEST_USER, share_key
from support.admission import ACCEPTED, FINISHED, held, run, world

HALF_LIFE = 7 * 86_400.0
A, B, C = ("q", "a", ""), ("q", "b", ""), ("r", "c", "")


def test_what_was_used_a_half_life_ago_counts_half() -> None:
    book = UsageBook(1000.0, {A: 500.0}).advanced(1000.0 + HALF_LIFE, ChargedUsage(), HALF_LIFE)
    assert book.rows[A] == pytest.approx(250.0)


def test_a_short_use_counts_its_node_seconds_and_an_endless_one_comes_to_rest() -> None:
    """Four nodes for a minute; and forever: n * h / ln 2."""
    begun = UsageBook(1.0)
    assert begun.advanced(61.0, ChargedUsage({A: 4}), HALF_LIFE).rows[A] == pytest.approx(240.0, rel=1e-4)
    forever = begun.advanced(1e9, ChargedUsage({A: 4}), HALF_LIFE).rows[A]
    assert forever == pytest.approx(4 * HALF_LIFE / math.log(2))


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.integers(1, 512), st.floats(60, 1e7))
def test_two_steps_come_to_the_same_as_one(first: float, second: float, nodes: int, half_life: float) -> None:
    book, use = UsageBook(1000.0, {A: 1e6}), ChargedUsage({A: nodes, B: 1}, {"q": 8 * nodes})
    at_once = book.advanced(1000.0 + first + second, use, half_life)
    in_steps = book.advanced(1000.0 + first, use, half_life).advanced(1000.0 + first + second, use, half_life)
    for key in at_once.rows.keys() & in_steps.rows.keys():
        assert at_once.rows[key] == pytest.approx(in_steps.rows[key], rel=1e-6, abs=2.0)
    assert at_once.gpu_hours("q") == pytest.approx(in_steps.gpu_hours("q"), rel=1e-6)


def test_what_is_kept_for_debugging_after_the_end_is_charged_for_until_it_is_given_back() -> None:
    status = {**held("n0", "n1", "n2"), "conditions": (ACCEPTED, FINISHED), "resolved": ResolvedStatus(gpus_per_node=8)}
    kept = {"leaving": LeavingStatus(nodes=2, until=9.0), "recovery": RecoveryStatus(debug_until=9.0)}
    usage = ChargedUsage.from_runs([run("a", 3, status=status | kept), run("b", 3, status=status)])
    assert (dict(usage.nodes), dict(usage.gpus)) == ({("default", "team", ""): 2}, {"default": 16})


def test_gpu_hours_are_those_of_the_last_day() -> None:
    book = UsageBook(3600.0).advanced(2 * 3600.0, ChargedUsage({}, {"q": 8}), HALF_LIFE)
    assert book.gpu_hours("q") == pytest.approx(8.0)
    later = book.advanced(25 * 3600.0 + 1800.0, ChargedUsage(), HALF_LIFE)
    assert later.gpu_hours("q") == pytest.approx(4.0)  # half of that hour is more than a day ago
    assert later.advanced(27 * 3600.0, ChargedUsage(), HALF_LIFE).gpu_hours("q") == 0.0


def test_users_whose_long_names_end_differently_are_two_and_their_rows_stay_small() -> None:
    issuer = "https://accounts.example/realms/research-and-development/users#"
    named = [replace(run("a"), annotations={names.ANNOTATION_USER: user}) for user in (issuer + "ann", issuer + "bob")]
    ann, bob = (share_key(each)[2] for each in named)
    assert ann != bob
    assert len(ann) == len(bob) == LONGEST_USER
    assert ann.startswith("https://accounts.example/")
    whole = "u" * LONGEST_USER
    assert share_key(replace(named[0], annotations={names.ANNOTATION_USER: whole}))[2] == whole


def test_time_that_goes_back_counts_nothing() -> None:
    book = UsageBook(1000.0, {A: 5.0})
    assert book.advanced(900.0, ChargedUsage({A: 4}), HALF_LIFE) == book


def test_a_book_of_a_clock_that_was_ahead_goes_on_from_now() -> None:
    ahead = UsageBook(400 * 86_400.0, {A: 5.0}, {"q": {1: 60.0, 9_600: 70.0}})
    mended = ahead.not_beyond(7300.0)
    assert mended == UsageBook(7300.0, {A: 5.0}, {"q": {1: 60.0}})
    assert mended.advanced(7310.0, ChargedUsage({A: 4}), HALF_LIFE).rows[A] > 40.0
    assert UsageBook(1000.0).not_beyond(7300.0) == UsageBook(1000.0)


def test_a_book_survives_being_written_down() -> None:
    book = UsageBook(7200.0, {A: 100.0, REST: 5.0}, {"q": {1: 60.0}})
    assert UsageBook.load(json.loads(json.dumps(book.dump()))) == book


@pytest.mark.parametrize("raw", [None, [], {"format": 2}, {"format": 1, "at": 0, "rows": [1], "hours": {}}])
def test_anything_else_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"book of usage|not known"):
        UsageBook.load(raw)


def test_the_least_users_are_folded_into_one_row() -> None:
    rows = {("q", f"n{index}", ""): 10.0 + index for index in range(2 * MAX_ROWS + 10)}
    book = UsageBook(1.0, rows).advanced(2.0, ChargedUsage(), HALF_LIFE)
    assert len(book.rows) == MAX_ROWS
    assert sum(book.rows.values()) == pytest.approx(sum(rows.values()), rel=1e-3)
    assert ("q", f"n{2 * MAX_ROWS + 9}", "") in book.rows


@pytest.mark.parametrize("letter", ["\x01", "😀", "a"])
def test_a_book_is_written_in_fewer_bytes_than_a_config_map_holds_however_users_are_called(letter: str) -> None:
    """A control character takes six bytes, and the API server refuses what is larger."""
    rows = {("q", f"n{at}", letter * (LONGEST_USER - 4) + f"{at:04}"): 10.0 + at for at in range(MAX_ROWS)}
    book = UsageBook(7200.0, rows, {f"q{at}": dict.fromkeys(range(25), 1e6) for at in range(100)})
    written = book.dump()
    assert len(orjson.dumps(written)) <= MAX_BYTES
    read = UsageBook.load(json.loads(json.dumps(written)))
    assert max(rows, key=rows.__getitem__) in read.rows, "the largest stay"
    assert sum(read.rows.values()) == pytest.approx(sum(rows.values())), "and what all used"
    assert read.hours == book.hours


def test_a_book_of_more_queues_than_it_has_room_for_keeps_the_hours_of_the_largest_and_its_users() -> None:
    hours = {f"{at:04}" + "q" * 249: dict.fromkeys(range(277_000, 277_025), 1e6 + at) for at in range(1500)}
    book = UsageBook(277_025 * 3600.0, {("q", "n", f"u{at}"): 5.0 for at in range(100)}, hours)
    written = book.dump()
    assert len(orjson.dumps(written)) <= MAX_BYTES
    read = UsageBook.load(json.loads(json.dumps(written)))
    assert read.rows == book.rows
    assert 500 < len(read.hours) < len(hours)
    assert [*read.hours] == [*hours][-len(read.hours) :]


def test_however_many_users_one_namespace_has_those_of_others_are_kept() -> None:
    many = {("q", "crowd", f"u{at}"): 100.0 + at for at in range(2 * MAX_ROWS)}
    book = UsageBook(1.0, {**many, B: 5.0}).advanced(2.0, ChargedUsage(), HALF_LIFE)
    assert len(book.rows) == MAX_OF_NAMESPACE + 2
    assert book.rows[B] == pytest.approx(5.0, rel=1e-4)
    crowd = sum(used for key, used in book.rows.items() if key[:2] == ("q", "crowd"))
    assert crowd == pytest.approx(sum(many.values()), rel=1e-4), "it is charged for all of them"
    assert book.rows["q", "crowd", OTHERS] > 0
    assert ("q", "crowd", f"u{2 * MAX_ROWS - 1}") in book.rows, "its largest are known by name"


@pytest.mark.parametrize("crowd", [{"ns": 3 * MAX_OF_NAMESPACE}, {f"n{at}": MAX_OF_NAMESPACE for at in range(20)}])
@pytest.mark.parametrize("pause", [0.0, 60.0])
def test_who_comes_after_many_is_charged_for_what_it_uses_bit_by_bit(crowd: dict[str, int], pause: float) -> None:
    """What it used between two cycles is less than what any of them used."""
    rows = {("q", namespace, f"u{at}"): 20_000.0 for namespace, users in crowd.items() for at in range(users)}
    new, book = ("q", "ns", "new"), UsageBook(1000.0, rows)
    for _ in range(50):
        book = book.advanced(book.at + 60.0, ChargedUsage({new: 10}), HALF_LIFE)
        book = book.advanced(book.at + pause, ChargedUsage(), HALF_LIFE)
    assert book.rows[new] == pytest.approx(50 * 10 * 60.0, rel=0.01)


def test_who_has_nodes_is_charged_for_them_by_name_however_many_they_are() -> None:
    held = ChargedUsage({("q", "ns", f"u{at}"): 1 for at in range(3 * MAX_ROWS)})
    book = UsageBook(1000.0).advanced(1060.0, held, HALF_LIFE)
    assert book.rows.keys() == held.nodes.keys()
    gone = book.advanced(1120.0, ChargedUsage(), HALF_LIFE)
    assert len(gone.rows) == MAX_OF_NAMESPACE + 1


def test_nobody_has_used_anything_and_everybody_has_the_whole_share() -> None:
    assert shares(UsageBook(1.0), {}, [A, C]) == {A: 1.0, C: 1.0}


def test_the_factor_is_that_of_slurm() -> None:
    """Two queues with weights 3 and 1 that used the same: S = 0.75 and 0.25, U = E = 0.5 (by hand)."""
    found = shares(UsageBook(1.0, {A: 50.0, C: 50.0}), {"q": 3, "r": 1}, [A, C])
    effective_a = 0.5 + (1 - 0.5) * 0.75
    effective_c = 0.5 + (1 - 0.5) * 0.25
    assert found[A] == pytest.approx(2 ** (-effective_a / 0.75))
    assert found[C] == pytest.approx(2 ** (-effective_c / 0.25))
    assert found[A] > found[C]


def test_who_used_nothing_bears_a_part_of_what_its_queue_used() -> None:
    """One queue; namespace a used all. E(a) = 1, E(b) = 0 + (1 - 0) / 2; S = 1/2 each (by hand)."""
    found = shares(UsageBook(1.0, {A: 100.0}), {}, [A, B])
    assert found[A] == pytest.approx(2**-2)
    assert found[B] == pytest.approx(2**-1)


class CountedKey(tuple[str, ...]):
    """A key that counts how often a part of it is read."""

    reads = 0

    def __getitem__(self, part: Any) -> Any:
        type(self).reads += 1
        return super().__getitem__(part)


def test_the_work_grows_no_faster_than_the_number_of_queues() -> None:
    count = 300
    keys: Any = [CountedKey((f"q{number}", "a", "")) for number in range(count)]
    found = shares(UsageBook(1.0, {A: 1.0}), {}, keys)
    assert len(found) == count + 1
    assert CountedKey.reads <= 10 * count


def test_only_queues_that_exist_and_are_for_the_namespace_share_the_cluster() -> None:
    queues = world([], queues={"q": {"namespaceSelector": {"matchLabels": {"team": "ml"}}}, "open": {}}).queues
    labels = {"a": {"team": "ml"}, "b": {}}
    inside = {("q", "a", ""), ("q", "a", "ann"), ("open", "b", ""), ("default", "b", ""), ("default", "unknown", "")}
    outside = {("q", "b", ""), ("q", "unknown", ""), ("none", "a", "")}
    assert admissible(inside | outside, queues, labels) == inside
    closed = {"default": replace(queues["q"], name="default")}
    assert admissible([("default", "a", ""), ("default", "b", "")], closed, labels) == {("default", "a", "")}


@given(st.dictionaries(st.tuples(*(st.sampled_from("xyz") for _ in range(3))), st.floats(1, 1e9), max_size=12))
def test_factors_lie_between_0_and_1_and_more_use_never_raises_ones_own(
    rows: dict[tuple[str, str, str], float],
) -> None:
    key = ("x", "x", "x")
    before = shares(UsageBook(1.0, rows), {"x": 2}, [key])
    more = shares(UsageBook(1.0, {**rows, key: rows.get(key, 0.0) + 1e6}), {"x": 2}, [key])
    assert all(0.0 < factor <= 1.0 for factor in before.values())
    assert more[key] <= before[key] + 1e-9


def test_everything_that_is_held_is_charged_spares_included() -> None:
    view = run("one", 2, status=held("n0", "n1", ""), queue="q")
    assert ChargedUsage.from_runs([view, run("waits", 4)]).nodes == {("q", "team", ""): 2}


def test_a_user_name_as_long_as_a_book_is_cut() -> None:
    view = replace(run("one", status=held("n0")), annotations={"lockstep.dev/user": "x" * 200_000})
    ((_, _, user),) = ChargedUsage.from_runs([view]).nodes
    assert len(user) == LONGEST_USER
    assert user.startswith("xxx")
