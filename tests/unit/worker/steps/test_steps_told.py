"""What a step tells the worker of its node, of nodes that could not be reached; and what the worker makes of that."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.step_gang import Authority
from lockstep.worker.settings import Settings
from lockstep.worker.steps.client import RunningStep, StepSink
from lockstep.worker.steps.credentials import AttemptGang, Peer, write_credentials
from lockstep.worker.steps.service import MAX_ENDS, StepService
from lockstep.worker.steps.told import ProcessEnd, WorkerFifo, unreached_row, was_asked
from support.stepping import asked


class Node:
    """Of rank 0, beside peers that nobody serves."""

    def __init__(self, directory: Path, peers: int) -> None:
        self.directory = str(directory)
        with socket.socket() as nobody:  # a port that refuses
            nobody.bind(("127.0.0.1", 0))
            self.port = nobody.getsockname()[1]
        self.gang = AttemptGang("u", 1, 0, [Peer("127.0.0.1", self.port, rank, 1) for rank in range(peers)])
        authority = Authority()
        write_credentials(self.directory, self.gang, authority.certificate, *authority.issue(self.gang.identity(0)))
        self.told = WorkerFifo(self.directory)

    def ask(self, *ranks: int, tasks: int = 1) -> None:
        requests = [asked(rank, "true", tasks=[rank * 10 + task for task in range(tasks)]) for rank in ranks]
        RunningStep(self.gang, self.directory, requests, StepSink(), reach=0.05).run()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "steps", 9)
    yield made
    made.told.close()


def test_a_node_that_cannot_be_reached_is_told_once_a_step_with_its_rank_and_why(node: Node) -> None:
    node.ask(2, tasks=3)
    (row,) = node.told.rows()
    assert (row["reason"], row["nodeRank"], row["code"], row["signal"]) == ("NodeUnreachable", 2, 255, None)
    assert (row["step"], row["asked"]) == ("step", False)
    assert row["stderrTail"] == f"rank 2 at 127.0.0.1 port {node.port} cannot be reached: Connection refused"
    assert abs(row["at"] - time.time()) < 60


def test_of_many_nodes_that_cannot_be_reached_a_few_are_told(node: Node) -> None:
    node.ask(*range(1, 9))
    assert len(node.told.rows()) == 4


def test_a_node_that_cannot_reach_its_own_server_says_nothing_of_others(node: Node) -> None:
    node.ask(0)
    assert node.told.rows() == []


def test_a_step_goes_on_where_no_worker_listens(tmp_path: Path) -> None:
    alone = Node(tmp_path / "steps", 2)
    alone.told.close()
    alone.ask(1)


@pytest.mark.parametrize(
    "changes", [{"nodeRank": -1}, {"nodeRank": 1 << 16}, {"nodeRank": None}, {"nodeRank": "x"}], ids=str
)
def test_a_row_of_no_rank_is_no_news(node: Node, changes: dict[str, Any]) -> None:
    row = {**json.loads(unreached_row("1", 0, 2, "gone")), **changes}
    os.write(node.told.writes, json.dumps(row).encode("ascii") + b"\n")
    assert node.told.rows() == []


def test_other_reasons_are_not_for_programs_to_say(node: Node) -> None:
    row = {**json.loads(unreached_row("1", 0, 2, "gone")), "reason": "OOMKilled"}
    os.write(node.told.writes, json.dumps(row).encode("ascii") + b"\n")
    (told,) = node.told.rows()
    assert not {"reason", "nodeRank"} & set(told)


@pytest.mark.parametrize(
    ("sent", "code", "number", "wanted"),
    [
        ([], 1, 0, False),
        ([signal.SIGUSR1], 1, 0, False),
        ([signal.SIGUSR1, signal.SIGCONT], 0, signal.SIGSEGV, False),
        ([signal.SIGUSR1], 0, signal.SIGUSR1, True),
        ([signal.SIGUSR1], 128 + signal.SIGUSR1, 0, True),
        ([signal.SIGALRM, signal.SIGINT], 7, 0, True),
        ([signal.SIGQUIT], 0, signal.SIGSEGV, True),
    ],
)
def test_an_end_is_asked_for_by_a_signal_that_means_it_or_by_the_one_that_brings_it_about(
    sent: list[int], code: int, number: int, wanted: bool
) -> None:
    assert was_asked(set(sent), code, number) is wanted


@pytest.fixture
def service(node: Node, tmp_path: Path) -> StepService:
    made = StepService(Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",), scratch=str(tmp_path)))
    made._told = node.told
    return made


def hear(service: StepService, node: Node, *rows: bytes, stopping: bool = False) -> None:
    for row in rows:
        os.write(node.told.writes, row)
    service.hear(stopping)


def test_of_each_node_the_worker_keeps_the_last_word_and_of_few_nodes(service: StepService, node: Node) -> None:
    hear(service, node, *(unreached_row(f"{number}", 0, 2 + number % 2, "gone") for number in range(10)))
    assert [(row["step"], row["nodeRank"]) for row in service.ends] == [("8", 2), ("9", 3)]
    hear(service, node, *(unreached_row("10", 0, rank, "gone") for rank in range(3, 9)))
    assert [row["nodeRank"] for row in service.ends] == [5, 6, 7, 8]


def test_nodes_that_could_not_be_reached_and_processes_that_failed_leave_room_for_each_other(
    service: StepService, node: Node
) -> None:
    failed = [ProcessEnd("python", 1, 0, b"", asked=False).row("1", task) for task in range(MAX_ENDS + 4)]
    hear(service, node, *failed, unreached_row("2", 0, 2, "gone"))
    assert [row["task"] for row in service.ends if "nodeRank" not in row] == [*range(8), *range(13, 20)]
    assert len(service.ends) == MAX_ENDS
    hear(service, node, *(unreached_row("3", 0, rank, "gone") for rank in range(3, 9)))
    assert [row["task"] for row in service.ends if "nodeRank" not in row] == [*range(8), *range(16, 20)]
    assert len(service.ends) == MAX_ENDS


def test_however_many_processes_failed_before_it_the_one_that_failed_last_is_told(
    service: StepService, node: Node
) -> None:
    failed = [ProcessEnd("probe", 1, 0, b"", asked=False).row(str(step), 0) for step in range(100)]
    hear(service, node, *failed, ProcessEnd("python", 7, 0, b"", asked=False).row("100", 2))
    assert [row["step"] for row in service.ends] == [*map(str, range(8)), *map(str, range(93, 101))]


def test_ends_that_were_asked_for_take_no_room(service: StepService, node: Node) -> None:
    hear(service, node, *(ProcessEnd("burn", 0, 15, b"", asked=True).row("1", task) for task in range(MAX_ENDS)))
    hear(service, node, ProcessEnd("python", 7, 0, b"", asked=False).row("2", 2))
    assert [(row["step"], row["code"], row["asked"]) for row in service.ends] == [("2", 7, False)]


def test_what_breaks_once_the_attempt_is_to_end_is_no_news(service: StepService, node: Node) -> None:
    hear(service, node, unreached_row("1", 0, 2, "gone"), stopping=True)
    assert service.ends == []
