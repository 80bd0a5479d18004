"""Numbers of batch jobs: which block is next, whatever has become of the counter."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.batch_spec import BatchSpec
from lockstep.core.model.job_ids import BLOCK, GAP, has_job_id, job_ids_of, next_block
from lockstep.slurm.environment import MOST_JOB_ID
from support.launchers import launched

ABOVE_7 = range(7 + GAP + 1, 7 + GAP + 1 + BLOCK)

NEXT: dict[str, tuple[object, int, range]] = {
    "none was ever given out": (None, 0, range(1, 1 + BLOCK)),
    "the counter says where to go on": ("501", 7, range(501, 501 + BLOCK)),
    "one is known that the counter has yet to give out": ("7", 7, ABOVE_7),
    "the counter is gone": (None, 7, ABOVE_7),
    "the counter is no number": ("many", 7, ABOVE_7),
    "the counter is no number, and nothing is known": ("-5", 0, range(1, 1 + BLOCK)),
    "the counter is no text": (501, 7, ABOVE_7),
    "the counter is nothing": ("0", 0, range(1, 1 + BLOCK)),
    "digits that are none of ours": ("٥٠١", 7, ABOVE_7),
    "the counter has digits without end": ("9" * 5000, 7, ABOVE_7),
    "the last ones": (str(MOST_JOB_ID - 1), 7, range(MOST_JOB_ID - 1, MOST_JOB_ID + 1)),
    "they are used up": (str(MOST_JOB_ID + 1), 7, range(0)),
    "the last is known": (None, MOST_JOB_ID, range(0)),
}


@pytest.mark.parametrize(("counter", "highest", "block"), NEXT.values(), ids=NEXT)
def test_blocks_go_on_where_no_number_can_have_been_given_out(counter: object, highest: int, block: range) -> None:
    assert list(next_block(counter, highest)) == list(block)


@pytest.mark.parametrize(("launcher", "numbered"), [("Slurm", True), ("MPI", False), ("Plain", False)])
def test_batch_jobs_alone_have_a_number(launcher: str, numbered: bool) -> None:
    assert has_job_id(launched(launcher, ["x"])) is numbered
    assert not has_job_id(None)


def test_a_block_is_as_large_as_a_job_needs() -> None:
    assert next_block("501", 7, BLOCK + 1) == range(501, 502 + BLOCK)


def test_a_job_has_a_number_for_each_of_its_components() -> None:
    spec = launched("Slurm", ["x"])
    batch = BatchSpec(script="#!/bin/sh", components=(1, 2, 1))
    assert [job_ids_of(each) for each in (None, spec, changed(spec, launcher=changed(spec.launcher, batch=batch)))] == [
        1,
        1,
        3,
    ]
