"""One cache fed from lists, watches and answers that overtake one another."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.core.model.cluster_objects import Versioned


def recording() -> tuple[ObjectCache[str], list[tuple[str | None, str | None]]]:
    changes: list[tuple[str | None, str | None]] = []
    return ObjectCache(lambda old, new: changes.append((old, new))), changes


def test_an_older_event_never_regresses_a_newer_answer() -> None:
    cache, changes = recording()
    cache.upsert(Versioned("u", 5, "written"))
    cache.upsert(Versioned("u", 4, "older"))
    cache.upsert(Versioned("u", 5, "written"))
    assert cache.get("u") == "written"
    assert changes == [(None, "written")]


def test_a_view_that_did_not_change_is_no_change() -> None:
    cache, changes = recording()
    cache.upsert(Versioned("u", 5, "same"))
    cache.upsert(Versioned("u", 6, "same"))
    assert cache.version("u") == 6
    assert changes == [(None, "same")]


def test_late_news_of_a_deleted_object_revives_nothing() -> None:
    cache, changes = recording()
    cache.remove("u", 9)
    cache.upsert(Versioned("u", 7, "answer to the create, read late"))
    assert cache.get("u") is None
    assert changes == []
    assert cache.is_gone("u")


def test_an_object_that_left_a_filtered_watch_may_come_back() -> None:
    cache, _ = recording()
    cache.upsert(Versioned("u", 5, "a"))
    cache.remove("u", 6)
    cache.upsert(Versioned("u", 7, "b"))
    assert cache.get("u") == "b"
    assert not cache.is_gone("u")


def test_a_list_removes_the_ghosts_of_a_watch_gap() -> None:
    cache, changes = recording()
    cache.upsert(Versioned("ghost", 5, "g"))
    cache.upsert(Versioned("kept", 6, "k"))
    cache.replace([Versioned("kept", 6, "k")], 10)
    assert list(cache) == ["k"]
    assert changes[-1] == ("g", None)
    assert cache.synced


def test_a_list_does_not_remove_what_was_written_after_it() -> None:
    cache, _ = recording()
    cache.upsert(Versioned("new", 12, "n"))
    cache.replace([], 10)
    assert list(cache) == ["n"]


def test_a_late_deletion_does_not_remove_what_is_newer() -> None:
    cache, _ = recording()
    cache.upsert(Versioned("u", 12, "n"))
    cache.remove("u", 10)
    assert cache.get("u") == "n"


def test_a_restored_backup_replaces_everything_although_its_versions_are_older() -> None:
    cache, _ = recording()
    cache.upsert(Versioned("changed", 100, "later"))
    cache.upsert(Versioned("created-since", 101, "x"))
    cache.remove("deleted-since", 102)
    cache.replace([Versioned("changed", 50, "as of then"), Versioned("deleted-since", 40, "back")], 60, reset=True)
    assert sorted(cache) == ["as of then", "back"]


def test_what_was_restored_is_older_than_what_was_known_although_the_list_counts_on_from_a_higher_version() -> None:
    cache, changes = recording()
    cache.upsert(Versioned("changed", 100, "later"))
    cache.remove("deleted-since", 102)
    cache.upsert(Versioned("written-after-the-list", 1003, "new"))
    restored = [("changed", 50, "as of then"), ("deleted-since", 40, "back"), ("written-after-the-list", 60, "old")]
    cache.replace([Versioned(*item) for item in restored], 1000)
    assert sorted(cache) == ["as of then", "back", "new"]
    assert cache.version("changed") == 50
    assert changes[-2:] == [("later", "as of then"), (None, "back")]


def test_what_a_quorum_says_is_older_is_let_in_unless_there_is_newer_news() -> None:
    cache, _ = recording()
    cache.upsert(Versioned("changed", 100, "later"))
    cache.upsert(Versioned("written", 1001, "new"))
    for uid in ("changed", "written"):
        cache.set_back(uid, 100)
        cache.upsert(Versioned(uid, 50, "as of then"))
    assert sorted(cache) == ["as of then", "new"]


UIDS = st.sampled_from(["a", "b", "c"])


@given(st.data())
def test_whatever_overtakes_what_the_end_is_the_newest_state_of_the_cluster(data: st.DataObject) -> None:
    """Play a history of a cluster; deliver its events in any order, with lists of any age between."""
    state: dict[str, tuple[int, str]] = {}
    events: list[tuple[str, str, int]] = []
    lists: list[tuple[int, dict[str, tuple[int, str]]]] = []
    used: set[str] = set()
    for version in range(1, data.draw(st.integers(1, 12)) + 1):
        uid = data.draw(UIDS)
        if uid in state and data.draw(st.booleans()):
            del state[uid]
            used.add(uid)
            events.append(("delete", uid, version))
        elif uid not in used:  # a UID never comes back
            state[uid] = (version, f"{uid}{version}")
            events.append(("upsert", uid, version))
        lists.append((version, dict(state)))
    cache, changes = recording()
    shuffled = data.draw(st.permutations(events))
    for kind, uid, version in shuffled:
        if kind == "upsert":
            cache.upsert(Versioned(uid, version, f"{uid}{version}"))
        else:
            cache.remove(uid, version)
        if data.draw(st.booleans()):
            version, items = data.draw(st.sampled_from(lists))
            cache.replace([Versioned(u, v, view) for u, (v, view) in items.items()], version)
    assert sorted(cache) == sorted(view for _, view in state.values())
    told: dict[str, str] = {}
    for old, new in changes:
        assert told.get((old or new or "")[0]) == old
        if new is None:
            del told[(old or "")[0]]
        else:
            told[new[0]] = new
    assert sorted(told.values()) == sorted(cache)


def test_what_comes_of_one_object_keeps_no_other_of_a_list_from_being_heard_of() -> None:
    heard: list[str] = []

    def changed(old: str | None, new: str | None) -> None:
        if new == "bad":
            raise ZeroDivisionError
        heard.append(new or "")

    left_out = LeftOut()
    cache: ObjectCache[str] = ObjectCache(changed, "pods", left_out)
    cache.replace([Versioned("u1", 1, "bad"), Versioned("u2", 1, "good")], 1)
    assert (heard, cache.synced, left_out.counts) == (["good"], True, {"pods": 1})


def test_what_a_list_has_and_nobody_can_read_stays_as_it_was_known() -> None:
    cache: ObjectCache[str] = ObjectCache(lambda old, new: None)
    cache.replace([Versioned("u1", 1, "one"), Versioned("u2", 1, "two"), Versioned("u3", 1, "three")], 1)
    cache.replace([Versioned("u2", 1, "two")], 5, unread={"u1"})
    assert list(cache) == ["one", "two"]
