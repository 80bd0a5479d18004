"""Which pods a rank's log comes from, and which lines of them."""

from __future__ import annotations

import errno
import functools
from typing import Any

import pytest

from lockstep.cli import runs
from lockstep.cli.actions import wait
from lockstep.cli.errors import ApiServerError, CliError, Unreachable
from lockstep.cli.views import log_following, logs
from lockstep.cli.views.log_following import Followed, RankLog, follow
from lockstep.cli.views.logs import Wanted
from support import sample_runs as sample

LOG = [
    b"lockstep: not ready: /dev/shm is full\n",
    b"lockstep: attempt=1 rank=2 node=gpu-3 resume=none world=4 master=10.0.0.1:20001 start\n",
    b"step 1\n",
    b"lockstep: attempt=1 node=gpu-3 end code=1 reason=Error after=9.0s\n",
    b"lockstep: attempt=12 rank=2 node=gpu-3 resume=300 world=4 master=10.0.0.1:20002 start\n",
    b"step 301\n",
]


def view(**changes: Any) -> Any:
    return runs.view(sample.running(**changes))


def test_a_rank_is_read_from_its_current_incarnation() -> None:
    assert logs.pod_names(view(), 2, Wanted()) == ["llama-c83fa-2-2"]


def test_an_attempt_is_sought_in_the_pod_before_too() -> None:
    assert logs.pod_names(view(), 2, Wanted(attempt=1)) == ["llama-c83fa-2-1", "llama-c83fa-2-2"]
    assert logs.pod_names(view(), 0, Wanted(attempt=1)) == ["llama-c83fa-0-1"]


def test_an_attempt_is_cut_out_at_the_markers_of_the_worker() -> None:
    assert list(logs.of_attempt(iter(LOG), 1)) == LOG[1:4]
    assert list(logs.of_attempt(iter(LOG), 12)) == LOG[4:]
    assert list(logs.of_attempt(iter(LOG), 2)) == []


def test_markers_are_found_behind_timestamps() -> None:
    stamped = [b"2026-12-01T00:00:00.123456789Z " + line for line in LOG]
    assert list(logs.of_attempt(iter(stamped), 12)) == stamped[4:]


@pytest.mark.parametrize(("ranks", "chosen"), [("", [0, 1, 2, 3]), ("2", [2]), ("0-1,3", [0, 1, 3])])
def test_ranks_are_named_in_ranges(ranks: str, chosen: list[int]) -> None:
    assert logs.chosen_ranks(view(), ranks) == chosen


@pytest.mark.parametrize(("ranks", "words"), [("4", "has ranks 0-3, not 4"), ("x", "is no set of ranks")])
def test_ranks_that_there_are_not_are_refused(ranks: str, words: str) -> None:
    with pytest.raises(CliError, match=words):
        logs.chosen_ranks(view(), ranks)


def test_a_large_gang_asks_which_ranks_are_meant() -> None:
    nodes = [f"gpu-{n}" for n in range(512)]
    large = view(assignment={"nodes": nodes, "incarnations": [1] * 512})
    with pytest.raises(CliError, match="has 512 ranks; name those to show"):
        logs.chosen_ranks(large, "")


def test_a_suspended_gang_still_has_its_ranks() -> None:
    released = view(assignment={"incarnations": [1, 1, 2, 1]})
    assert logs.chosen_ranks(released, "") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("launcher", "ranks", "told"), [("MPI", "1-2", True), ("MPI", "0,2", False), ("Torchrun", "1", False)]
)
def test_whoever_asks_for_ranks_that_stand_by_is_told_where_the_output_is(
    launcher: str, ranks: str, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = sample.running()
    raw["spec"] |= {"launcher": {"type": launcher}}
    cluster: Any = None
    monkeypatch.setattr(runs, "fetch", lambda cluster, name: raw)
    monkeypatch.setattr(runs, "whole", lambda cluster, view: view)
    monkeypatch.setattr(logs, "rank_lines", lambda cluster, run, rank, wanted: iter(()))
    logs.show(cluster, "llama", ranks, Wanted())
    assert ("the command is on rank 0" in capsys.readouterr().err) is told


def test_ranks_whose_containers_have_not_started_are_told_once_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cluster:
        def stream(self, path: str, **query: object) -> Any:
            raise ApiServerError(400, 'container "trainer" in pod "x" is waiting to start: ContainerCreating')

    monkeypatch.setattr(runs, "fetch", lambda cluster, name: sample.running())
    with pytest.raises(CliError) as refused:
        logs.show(Cluster(), "llama", "0-2", Wanted())  # type: ignore[arg-type]
    words = "ranks 0-2 have no log to read: the container has not started yet (ContainerCreating)"
    assert str(refused.value) == words
    assert "lockstep logs -f llama waits" in refused.value.remedy


class Scripted(Followed):
    """A run that becomes the next of ``runs`` each time somebody pauses."""

    def __init__(self, *runs: Any) -> None:
        super().__init__(runs[0])
        self.later = list(runs[1:])

    def pause(self, seen: Any, seconds: float) -> None:
        if self.later:
            self.run = self.later.pop(0)


def stamped(second: int, words: str) -> bytes:
    return f"2026-12-01T00:00:{second:02d}.000000000Z {words}\n".encode()


NOT_STARTED = ApiServerError(400, "container is waiting to start")
ENDED = [{"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": "2026-12-01T00:00:00Z"}]


@pytest.mark.parametrize(
    ("runs_seen", "reads", "shown"),
    [
        pytest.param(
            [view(), view(conditions=ENDED)],
            [[NOT_STARTED], [stamped(1, "step 1")]],
            ["step 1"],
            id="a container that has not started is waited for",
        ),
        pytest.param(
            [view(), view(), view(conditions=ENDED)],
            [
                [stamped(1, "a"), stamped(2, "b"), Unreachable("lost")],
                [stamped(2, "b"), stamped(3, "c")],
                [stamped(3, "c")],
            ],
            ["a", "b", "c"],
            id="a lost connection repeats nothing and loses nothing",
        ),
        pytest.param(
            [view(), view(), view(conditions=ENDED)],
            [
                [stamped(1, "a"), stamped(1, "b"), stamped(2, "c"), stamped(2, "c"), Unreachable("lost")],
                [stamped(1, "a"), stamped(1, "b"), *[stamped(2, "c")] * 3, stamped(2, "d")],
                [*[stamped(2, "c")] * 3, stamped(2, "d"), stamped(3, "e"), stamped(3, "f")],
            ],
            ["a", "b", "c", "c", "c", "d", "e", "f"],
            id="lines of one moment are shown all, and none twice",
        ),
        pytest.param(
            [view(), view(conditions=ENDED)],
            [[stamped(1, "a"), stamped(3, "b"), stamped(2, "c")], [stamped(3, "b"), stamped(3, "d")]],
            ["a", "b", "c", "d"],
            id="a clock that goes back hides nothing",
        ),
        pytest.param(
            [view(), view(), view(conditions=ENDED)],
            [[b"a\n", b"a\n"], [b"a\n", b"a\n", b"b\n"], [b"a\n", b"a\n", b"b\n"]],
            ["a", "a", "b"],
            id="a kubelet that gives no timestamps is read anew each time",
        ),
        pytest.param(
            [
                view(),
                view(assignment={"nodes": ["a", "b", "c", "d"], "incarnations": [2, 1, 2, 1]}),
                view(assignment={"nodes": ["a", "b", "c", "d"], "incarnations": [2, 1, 2, 1]}, conditions=ENDED),
            ],
            [
                [stamped(1, "attempt 1")],
                [stamped(1, "attempt 1"), stamped(2, "its last words")],
                [stamped(0, "attempt 2")],
                [],
            ],
            ["attempt 1", "its last words", "attempt 2"],
            id="the pod of the next attempt follows once the last words of the one before are read",
        ),
        pytest.param(
            [view(assignment={}), view(), view(conditions=ENDED)],
            [[stamped(1, "first")], [stamped(1, "first")]],
            ["first"],
            id="a run without nodes is waited for",
        ),
    ],
)
def test_a_followed_rank_shows_every_line_once(runs_seen: list[Any], reads: list[Any], shown: list[str]) -> None:
    def read(pod: str, since: str) -> Any:
        for line in reads.pop(0):
            if isinstance(line, Exception):
                raise line
            yield line

    pod_of = functools.partial(logs._pod_to_follow, Wanted(follow=True))
    lines = RankLog(Scripted(*runs_seen), 0, pod_of, read).lines(stamped=False)
    assert [line.decode().rstrip() for line in lines] == shown
    assert not reads


def test_what_was_before_the_tail_is_not_shown_after_a_lost_connection() -> None:
    reads = [[stamped(1, "b")], [stamped(1, "a"), stamped(1, "b"), stamped(2, "c")]]
    followed = Scripted(view(), view(conditions=ENDED))
    log = RankLog(followed, 0, functools.partial(logs._pod_to_follow, Wanted(follow=True)),
                  lambda pod, since: iter(reads.pop(0)), is_tail=True)  # fmt: skip
    assert list(log.lines(stamped=False)) == [b"b\n", b"c\n"]


def test_a_pod_that_is_gone_is_no_container_that_has_yet_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    gone = ApiServerError(404, "not found", name="x")
    reads: list[Any] = [[stamped(1, "a")], [gone], [stamped(2, "b")], [stamped(2, "b")]]

    def read(pod: str, since: str) -> Any:
        for line in reads.pop(0):
            if isinstance(line, Exception):
                raise line
            yield line

    replaced = {"nodes": ["a", "b", "c", "d"], "incarnations": [2, 1, 2, 1]}
    followed = Scripted(view(), view(assignment=replaced), view(assignment=replaced, conditions=ENDED))
    lines = RankLog(followed, 0, functools.partial(logs._pod_to_follow, Wanted(follow=True)), read).lines(stamped=False)
    assert next(lines) == b"a\n"
    assert next(lines, None) == b"b\n"
    assert capsys.readouterr().err == ""


def test_a_log_that_may_not_be_read_ends_it() -> None:
    def read(pod: str, since: str) -> Any:
        raise ApiServerError(403, "forbidden")
        yield

    pod_of = functools.partial(logs._pod_to_follow, Wanted(follow=True))
    with pytest.raises(ApiServerError, match="forbidden"):
        list(RankLog(Scripted(view()), 0, pod_of, read).lines(stamped=False))


def follow_sample(monkeypatch: pytest.MonkeyPatch, later: list[Any], show: Any) -> None:
    monkeypatch.setattr(wait, "versions", lambda cluster, raw, timeout: iter(later))
    monkeypatch.setattr(runs, "whole", lambda cluster, view: view)
    cluster: Any = None
    follow(cluster, {}, later[0], lambda run: [0, 1], show)


def test_a_pipe_that_closes_ends_all_threads_in_one_error_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def show(followed: Followed, rank: int) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        follow_sample(monkeypatch, [view()], show)
    assert "Traceback" not in capfd.readouterr().err


def test_a_followed_run_that_ends_without_nodes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    later = [view(assignment={}), view(assignment={}, conditions=ENDED)]
    with pytest.raises(CliError, match="has ended without having had nodes"):
        follow_sample(monkeypatch, later, lambda followed, rank: None)


@pytest.mark.parametrize(
    "failure", [Unreachable("no answer"), ApiServerError(503, "busy"), ApiServerError(429, "busy")]
)
def test_an_assignment_that_lies_beside_the_run_is_asked_for_until_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    answers: list[Any] = [failure, failure, view(conditions=ENDED)]

    def whole(cluster: Any, run: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(log_following, "_SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr(wait, "versions", lambda cluster, raw, timeout: iter([view()]))
    monkeypatch.setattr(runs, "whole", whole)
    followed, cluster = Followed(view()), None
    followed.keep(cluster, {})  # type: ignore[arg-type]
    assert followed.failure is None
    assert followed.run.status.conditions
    assert capsys.readouterr().err == f"{failure}; asking again until it answers.\n"


def test_following_is_over_once_every_rank_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    follow_sample(monkeypatch, [view(), view(conditions=ENDED)], lambda followed, rank: seen.append(rank))
    assert sorted(seen) == [0, 1]


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ((), ""),
        ((0,), "rank 0 has no log to read: the run has ended, and its pods are gone"),
        ((0, 1), "ranks 0-1 have no log to read: the run has ended, and its pods are gone"),
    ],
)
@pytest.mark.parametrize("followed", [True, False])
def test_of_a_run_that_has_ended_pods_that_are_gone_are_told_once_followed_or_not(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    gone: tuple[int, ...],
    words: str,
    followed: bool,
) -> None:
    class Cluster:
        def stream(self, path: str, **query: object) -> Any:
            rank = int(path.split("/pods/")[1].removesuffix("/log").split("-")[-2])
            if rank in gone:
                raise ApiServerError(404, "not found", name="x")
            return iter([stamped(1, f"of {rank}")])

    raw = sample.running(conditions=ENDED)
    monkeypatch.setattr(runs, "fetch", lambda cluster, name: raw)
    monkeypatch.setattr(wait, "versions", lambda cluster, raw, timeout: iter([runs.view(raw)]))
    cluster: Any = Cluster()
    if words:
        with pytest.raises(CliError) as refused:
            logs.show(cluster, "llama", "0-1", Wanted(follow=followed))
        assert (str(refused.value), refused.value.exit_code) == (words, 1)
        assert "-f" not in refused.value.remedy
        assert "lockstep explain llama" in refused.value.remedy
    else:
        logs.show(cluster, "llama", "0-1", Wanted(follow=followed))
    assert capfdbinary.readouterr().out.count(b"of ") == 2 - len(gone), "what there is is shown"


def test_one_attempt_is_over_where_the_next_begins() -> None:
    def endless() -> Any:
        yield from LOG
        raise AssertionError("it is followed on")

    assert list(logs.of_attempt(endless(), 1)) == LOG[1:4]
