"""Lists of hosts, against what `scontrol show hostnames` and `show hostlist` print."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.slurm.hostlist import MOST, compress, compress_counts, expand, expand_counts, of_file
from support.examples import examples

BOTH_WAYS = [
    ("n[1-3,7],m01", ["n1", "n2", "n3", "n7", "m01"]),
    ("x[001-003]", ["x001", "x002", "x003"]),
    ("10.9.0.[1-2]", ["10.9.0.1", "10.9.0.2"]),
    ("r1n[1-2],r2n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ("n[3,1-2]", ["n3", "n1", "n2"]),  # the order is that of ranks
    ("n[08,9]", ["n08", "n9"]),
    ("n[9-10]", ["n9", "n10"]),
    ("n[099-100]", ["n099", "n100"]),
    ("n1", ["n1"]),
    ("node-a,node-b", ["node-a", "node-b"]),
    ("ip-10-0-1-2.ec2.internal", ["ip-10-0-1-2.ec2.internal"]),
    ("a1,b1,a2", ["a1", "b1", "a2"]),
    ("[1-3]", ["1", "2", "3"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "hosts"), BOTH_WAYS)
def test_a_list_is_expanded_and_written_as_slurm_does(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts
    assert compress(hosts) == text


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n1,,n2", ["n1", "n2"]),
        ("n1,n2,n2", ["n1", "n2", "n2"]),
        ("a[1-2]b", ["a1b", "a2b"]),
    ],
)
def test_other_ways_to_write_one_are_read(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text", ["n[3-1]", "n[1-2", "n1-2]", "n[a]", "n[]", "n[1-]", "n[[1]]", "n[1-99999999]", "n[1-300]x[1-300]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand(text)


@pytest.mark.slow
def test_the_bound_is_of_the_whole_list() -> None:
    assert len(expand(f"n[1-{MOST}]")) == MOST
    with pytest.raises(ValueError, match="more than"):
        expand(f"n[1-{MOST}],m1")


@pytest.mark.parametrize(
    "text",
    [
        f"n[{','.join(['0-65535'] * 40)}]",
        "[0-65535]" * 1000,
        f"{'n' * 2000}[0-65535]",
        f"{'[1]' * 2000}[0-65535]",
        ",".join([f"{'n' * 2000}[0-9999]"] * 4),
        f"n[{'0' * 5000}1]",
    ],
    ids=["ranges", "brackets", "a long name", "many parts of a name", "long names", "a wide number"],
)
def test_nothing_is_made_of_what_means_too_much(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"more than|is no range"):
            expand(text)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_a_file_lists_hosts_by_lines_commas_and_numbers_of_tasks() -> None:
    assert of_file("n[1-2],m # two\n#n9\n\n n3 n4\nn5*2\nk[1-2]*2\n") == [
        "n1", "n2", "m", "n3", "n4", "n5", "n5", "k1", "k2", "k1", "k2",
    ]  # fmt: skip
    assert of_file("\n# none\n") == []
    with pytest.raises(ValueError, match="more than"):
        of_file(f"n[1-{MOST}]\nn1\n")
    with pytest.raises(ValueError, match="more than"):
        of_file("n[1-1000]*99999\n")


@given(st.lists(st.from_regex(r"[a-z.-]{0,3}[0-9]{0,4}[a-z]?", fullmatch=True).filter(bool), max_size=12))
@settings(max_examples=examples(200))
def test_what_is_compressed_expands_to_the_same(hosts: list[str]) -> None:
    assert expand(compress(hosts)) == hosts


@pytest.mark.parametrize(
    ("counts", "text"), [([2, 2, 2, 1], "2(x3),1"), ([8], "8"), ([8] * 4, "8(x4)"), ([1, 2, 1], "1,2,1"), ([], "")]
)
def test_counts_of_tasks_are_written_and_read(counts: list[int], text: str) -> None:
    assert compress_counts(counts) == text
    assert expand_counts(text) == counts


@pytest.mark.parametrize("text", ["2(x", "a", "2(3)", f"1(x{MOST + 1})"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no count"):
        expand_counts(text)
