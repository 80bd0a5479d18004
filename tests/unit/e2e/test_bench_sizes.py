"""Which size a benchmark runs at, and says that it ran at."""

from argparse import ArgumentParser

import pytest

from bench.sizes import parsed

FULL = {"rounds": 20, "gang_nodes": 64}


@pytest.mark.parametrize(
    ("argv", "size", "rounds", "gang_nodes"),
    [
        ([], "short", 4, 64),
        (["--full"], "full", 20, 64),
        (["--rounds=20"], "full", 20, 64),
        (["--rounds=7"], "own", 7, 64),
        (["--full", "--gang-nodes=8"], "own", 20, 8),
    ],
)
def test_a_size_has_a_name_only_where_nothing_of_it_was_changed(
    argv: list[str], size: str, rounds: int, gang_nodes: int
) -> None:
    parser = ArgumentParser()
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--gang-nodes", type=int, default=64)
    options, found = parsed(parser, FULL, argv)
    assert (found, options.rounds, options.gang_nodes) == (size, rounds, gang_nodes)
