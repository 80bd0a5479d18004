"""Logs in the Standard Workload Format: what is read of a line, and what is said of one that cannot be."""

import pytest

from bench.swf import LogError, parsed

HEAD = "; Version: 2.2"


def line(
    number: int,
    *,
    submit: object = 0,
    run: object = 100,
    allocated: object = -1,
    requested: object = 4,
    limit: object = 600,
    status: object = 1,
) -> str:
    return f"{number} {submit} -1 {run} {allocated} -1 -1 {requested} {limit} -1 {status} 3 1 -1 0 -1 -1 -1"


def test_a_job_has_the_submit_time_the_processors_and_the_times_of_its_line() -> None:
    log = parsed([HEAD, "; MaxProcs: 8", "", line(1, submit=50), line(2, submit=80.5, run=7, requested=8, limit=9)])
    assert [(job.at, job.nodes, job.runtime, job.limit) for job in log.arrivals] == [(0, 4, 100, 600), (30.5, 8, 7, 9)]
    assert (log.nodes, log.left_out, log.unlimited) == (8, 0, 0)


def test_the_same_seed_gives_the_same_classes() -> None:
    lines = [line(number) for number in range(50)]
    levels = [job.level for job in parsed(lines, nodes=4, seed=1).arrivals]
    assert set(levels) == {0, 1, 2}
    assert levels == [job.level for job in parsed(lines, nodes=4, seed=1).arrivals]
    assert levels != [job.level for job in parsed(lines, nodes=4, seed=2).arrivals]


def test_processors_are_those_allocated_where_no_request_is_known() -> None:
    assert parsed([line(1, allocated=3, requested=-1)], nodes=4).arrivals[0].nodes == 3
    assert parsed([line(1, allocated=3, requested=2)], nodes=4).arrivals[0].nodes == 2


def test_a_job_gets_whole_nodes() -> None:
    log = parsed(["; MaxNodes: 16", "; MaxProcs: 64", line(1, requested=9), line(2, requested=8)], per_node=4)
    assert log.nodes == 16
    assert [job.nodes for job in log.arrivals] == [3, 2]


def test_the_nodes_of_the_head_are_taken_where_it_names_no_processors_and_those_given_before_all() -> None:
    assert parsed(["; MaxNodes: 100 (of which 4 are for tests)", line(1)]).nodes == 100
    assert parsed(["; MaxNodes: 100", line(1)], nodes=7).nodes == 7


def test_a_limit_that_is_not_known_or_too_short_is_the_runtime() -> None:
    log = parsed([line(1, limit=-1), line(2, limit=60), line(3)], nodes=4)
    assert [job.limit for job in log.arrivals] == [100, 100, 600]
    assert log.unlimited == 1


def test_jobs_that_never_ran_are_left_out_and_counted_and_parts_of_jobs_are_no_jobs() -> None:
    never = [line(1, run=-1), line(2, run=0, status=5), line(3, requested=-1), line(4, submit=-1, run=-1)]
    parts = [line(5, status=status) for status in (2, 3, 4)]
    log = parsed([*never, *parts, line(6, run=1, status=0), line(7, run=2, status=5)], nodes=4)
    assert [job.runtime for job in log.arrivals] == [1, 2]
    assert log.left_out == 4


def test_jobs_are_put_in_the_order_in_which_they_came_and_only_the_first_ones_are_taken() -> None:
    lines = [line(1, submit=30, run=3), line(2, submit=10, run=1, limit=-1), line(3, submit=20, run=2)]
    assert [job.runtime for job in parsed(lines, nodes=4).arrivals] == [1, 2, 3]
    log = parsed([*lines, line(4, submit=40, requested=99, limit=-1)], nodes=4, most=2)
    assert [(job.at, job.runtime) for job in log.arrivals] == [(0, 1), (10, 2)]
    assert log.unlimited == 1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([HEAD, "1 0 -1 100"], ["line 2 has 4 fields, a job has 18", "write -1"]),
        ([HEAD, line(1), line(2) + " 7"], ["line 3 has 19 fields"]),
        ([line(1, run="soon")], ["line 1, field 4 (run time): 'soon' is no number", "write one, or -1"]),
        ([line(1), line(2, limit="nan")], ["line 2, field 9 (requested time): 'nan' is no number"]),
        ([line(1, submit=-1)], ["line 1, field 2 (submit time)", "write when"]),
        ([line(1), line(2, requested=12)], ["line 2: the job takes 12 nodes, and the cluster has 4", "--nodes 12"]),
        (["; MaxProcs: many", line(1)], ["line 1: MaxProcs is no number", "give --nodes"]),
        ([HEAD, line(1, run=-1)], ["no line is a job that ran"]),
        ([], ["no line is a job that ran"]),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_what_to_do(lines: list[str], says: list[str]) -> None:
    with pytest.raises(LogError) as refused:
        parsed(lines, nodes=4)
    for words in says:
        assert words in str(refused.value)


def test_a_cluster_of_no_known_size_has_to_be_given_one() -> None:
    with pytest.raises(LogError, match="give --nodes"):
        parsed([HEAD, line(1)])
