"""What MPICH and Intel MPI print of ranks that were killed."""

import pytest

from lockstep.worker.steps.mpi_messages import MpiMessages

NODES = ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
LINE = b"=" * 83 + b"\n"
HEAD = LINE + b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
MPICH = HEAD + b"=   PID 30525 RUNNING AT 10.77.0.3\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n" + LINE
INTEL = HEAD + b"=   RANK 4 PID 30972 RUNNING AT 10.77.0.3\n=   KILLED BY SIGNAL: 9 (Killed)\n" + LINE


def said(*chunks: bytes, stream: int = 1) -> list[tuple[object, ...]]:
    messages = MpiMessages(NODES)
    for chunk in chunks:
        messages.feed(stream, chunk)
    rows = messages.take()
    assert messages.take() == []
    return [(row["nodeRank"], row["task"], row["signal"], row["code"]) for row in rows]


def test_node_and_signal_are_known_and_the_rank_where_it_is_said() -> None:
    assert said(MPICH) == [(2, 0, 9, None)]
    assert said(INTEL + b"\n" + INTEL.replace(b"RANK 4", b"RANK 5")) == [(2, 4, 9, None), (2, 5, 9, None)]


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_it_may_come_in_pieces(size: int) -> None:
    text = b"step 5 loss 3\n" * 20 + INTEL + b"more" * 600 + MPICH
    assert said(*[text[at : at + size] for at in range(0, len(text), size)]) == [(2, 4, 9, None), (2, 0, 9, None)]


@pytest.mark.parametrize(
    "text",
    [
        MPICH.replace(b"10.77.0.3", b"10.77.0.9"),
        MPICH.replace(b"BAD TERMINATION", b"A GOOD END"),
        HEAD + b"=   PID 1 RUNNING AT 10.77.0.3\n",
        b"x" * 100_000,
    ],
    ids=["no node of the gang", "other words", "cut off", "a flood"],
)
def test_other_output_is_no_news(text: bytes) -> None:
    assert said(text) == []


def test_of_two_nodes_at_one_address_neither_is_blamed() -> None:
    messages = MpiMessages(["10.77.0.3", "10.77.0.3"])
    messages.feed(1, MPICH)
    assert messages.take() == []


def test_no_more_are_kept_than_are_told() -> None:
    assert len(said(*[INTEL] * 40)) == 16
