"""Names of files with patterns in them."""

import pytest

from lockstep.slurm.patterns import Names, file_name, is_per_task

BATCH = Names(
    123, array_job=120, array_index=13, job_name="train", restarts=2, user="ann", node="n1", node_index=0, task=0
)
OF_SRUN = Names(123, step=4, job_name="train")
OF_TASK = OF_SRUN._replace(user="ann", node="n2", node_index=1, task=9)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-123.out"),
        ("%A_%a.out", "120_13.out"),
        ("%b", "3"),
        ("%x-%u-%N", "train-ann-n1"),
        ("%n.%t", "0.0"),
        ("%r", "2"),
        ("%J", "123"),
        ("%s", "batch"),
        ("%%j", "%j"),
        ("%5j %3a", "00123 013"),
        ("%2x", "train"),  # only numbers are padded
        ("%99j", "0000000123"),
        ("%q %", "%q %"),
        ("100%", "100%"),
        (r"a\%j", "a%j"),
        (r"%j\%x", "%j%x"),  # one anywhere is enough
    ],
)
def test_the_batch_scripts_files_are_named(pattern: str, name: str) -> None:
    assert file_name(pattern, BATCH) == name


@pytest.mark.parametrize(
    ("pattern", "of_srun", "of_task", "own"),
    [
        ("out", "out", "out", False),
        ("%j.%s", "123.4", "123.4", False),
        ("%J", "123.4", "123.4", False),
        ("%t.log", "%t.log", "9.log", True),
        ("%j_%3t", "123_%3t", "123_009", True),
        ("%N", "%N", "n2", True),
        ("%n", "%n", "1", True),
        ("%u", "%u", "ann", True),
        ("%%t", "%t", "%t", False),
        (r"\%t", "%t", "%t", False),
    ],
)
def test_files_of_tasks_are_named_where_the_task_is(pattern: str, of_srun: str, of_task: str, own: bool) -> None:
    assert file_name(pattern, OF_SRUN) == of_srun
    assert file_name(pattern, OF_TASK) == of_task
    assert is_per_task(pattern) is own


def test_without_an_array_its_number_is_the_jobs_and_its_index_none() -> None:
    """As Slurm has it: NO_VAL, of four bytes."""
    assert file_name("%A_%a %b %12a", OF_SRUN) == "123_4294967294 4 4294967294"
