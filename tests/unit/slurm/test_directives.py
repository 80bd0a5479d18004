"""Which lines of a batch script are options, and how they are split."""

import pytest

from lockstep.slurm.submission.directives import (
    MOST_BYTES,
    MOST_COMPONENTS,
    ScriptError,
    check_script,
    directives,
    wrapped,
)


def words(*lines: str) -> list[str]:
    [component] = directives("job.sh", "\n".join(["#!/bin/bash", *lines, ""])).components
    return [word.text for word in component]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH -N 4", ["-N", "4"]),
        ("#SBATCH --nodes=4 --time 1:00", ["--nodes=4", "--time", "1:00"]),
        ("#SBATCH\t-N4", ["-N4"]),
        ("#SBATCHx", ["x"]),  # only the beginning counts
        ("#SBATCH-N4", ["-N4"]),
        ("##SBATCH -N 4", []),
        ("# SBATCH -N 4", []),
        (" #SBATCH -N 4", []),
        ("#sbatch -N 4", []),
        ("#SBATCH", []),
    ],
)
def test_a_directive_begins_at_the_first_column(line: str, expected: list[str]) -> None:
    assert words(line) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-J 'a b'", ["-J", "a b"]),
        ('-J "a b"', ["-J", "a b"]),
        ("--comment=a' 'b\" \"c", ["--comment=a b c"]),  # inside a word
        (r"-J a\ b", ["-J", "a b"]),
        (r"-J a\"b", ["-J", 'a"b']),
        (r"-J a\#b", ["-J", "a#b"]),
        ("-J a # a comment", ["-J", "a"]),
        ("-J a#b -N 4", ["-J", "a"]),  # also in the middle of a word it ends the line
        ("-J 'a#b' -N 4", ["-J", "a#b", "-N", "4"]),
        ("-o $HOME/`x`/%j", ["-o", "$HOME/`x`/%j"]),  # nothing is expanded
    ],
)
def test_blanks_split_quotes_group_and_a_hash_ends_the_line(text: str, expected: list[str]) -> None:
    assert words(f"#SBATCH {text}") == expected


def test_directives_end_with_the_first_command_and_what_follows_is_told() -> None:
    found = directives("job.sh", "#!/bin/sh\n#SBATCH -N 2\n\n  # words\n  \t\nset -e\n#SBATCH -N 4\n#SBATCH -n 1\n")
    assert [word.text for word in found.components[0]] == ["-N", "2"]
    assert found.components[0][0].line == 2
    assert list(found.ignored_lines) == [7, 8]


def test_the_old_mark_counts_with_a_complaint() -> None:
    found = directives("job.sh", "#!/bin/sh\n#SLURM -N 2\n#SLURM -n 2\n")
    assert [word.text for word in found.components[0]] == ["-N", "2", "-n", "2"]
    assert len(found.warnings) == 1


@pytest.mark.parametrize("word", ["hetjob", "packjob", "HetJob"])
def test_a_line_of_its_own_begins_the_next_component(word: str) -> None:
    found = directives("job.sh", f"#!/bin/sh\n#SBATCH -N 1\n#SBATCH {word}\n#SBATCH -N 2\n")
    assert [[each.text for each in component] for component in found.components] == [["-N", "1"], ["-N", "2"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("\n".join(["#SBATCH hetjob"] * MOST_COMPONENTS), "job.sh: line 1025: a job has at most 1024 components"),
        ("#SBATCH -J 'a b", "job.sh: line 2: Unmatched `'` in [-J 'a b]"),
        ('#SBATCH -J "a', 'job.sh: line 2: Unmatched `"` in [-J "a]'),
        ("#SBATCH -N 1 : -N 2", "job.sh: line 2: Unexpected `:' in [-N 1 : -N 2]"),
    ],
)
def test_what_cannot_be_split_is_refused(line: str, message: str) -> None:
    with pytest.raises(ScriptError) as error:
        words(line)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b" \n\n", "only whitespace"),
        (b"echo\n", "does not look like a batch script"),
        (b"\n#!/bin/sh\n", "does not look like a batch script"),
        (b"#!/bin/sh\n\0", "NULL"),
        (b"#!/bin/sh\r\necho\r\n", "DOS line breaks"),
        (b"#!/bin/sh\n" + b"#" * MOST_BYTES, "shared volume"),
    ],
)
def test_what_is_no_script_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        check_script(body)


def test_a_script_is_taken() -> None:
    check_script(b"#!/bin/sh\necho\n")
    check_script(wrapped("srun hostname").encode())
    assert wrapped("srun hostname").endswith("\nsrun hostname\n")
