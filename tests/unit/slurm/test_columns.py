"""Lines of squeue and sinfo."""

import pytest

from lockstep.slurm.columns import line, long_format, short_format

JOB = {"i": "123", "j": "a-long-name", "N": "n[1-2]", "t": "R", "T": "RUNNING", "D": "2"}
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%N", "n[1-2]"),
        ("%i|%T", "123|RUNNING"),
        ("%i %t", "123 R"),
        ("%.6i|", "   123|"),
        ("%6i|", "123   |"),
        ("%4j|%.4j", "a-lo|a-lo"),
        ("[%i]", "[123]"),
        ("100%% %i", "100% 123"),
        ("%q", ""),
        ("", ""),
    ],
)
def test_letters_are_filled_in(text: str, expected: str) -> None:
    assert line(short_format(text), JOB) == expected


def test_the_default_line_is_squeues() -> None:
    headers = dict(
        zip("iPjutMDR", ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"], strict=True)
    )
    assert line(short_format(DEFAULT), headers) == (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    )


NAMED = {"jobid": "123", "state": "RUNNING"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JobID,State", "123".ljust(20) + "RUNNING".ljust(20)),
        ("JobID:5,State:.9", "123    RUNNING"),
        ("JobID:,State:", "123RUNNING"),
        ("state:3", "RUN"),
    ],
)
def test_names_are_filled_in(text: str, expected: str) -> None:
    assert line(long_format(text), NAMED) == expected
