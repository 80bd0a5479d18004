"""``#SBATCH`` lines of a batch script, read as sbatch reads them."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Sequence, Tuple

MARK, OLD_MARK = "#SBATCH", "#SLURM"
MOST_BYTES = 1 << 20
MOST_COMPONENTS = 1024  # as the API has it
_BLANKS = " \t\n\v\f\r"


class ScriptError(Exception):
    """Why sbatch takes no such script, in its words: lines that it puts ``sbatch: error: `` in front of."""


class Word(NamedTuple):
    """One word of a directive, with the line that it stands on, from 1."""

    text: str
    line: int


class Directives(NamedTuple):
    """What a script says of its job. ``components``: the words for each, one unless the job is heterogeneous."""

    components: Sequence[Sequence[Word]]
    ignored_lines: Sequence[int] = ()  # directives behind the first command
    warnings: Sequence[str] = ()


def check_script(body: bytes) -> None:
    """Raises ScriptError on what cannot be a script."""
    if not body:
        raise ScriptError("Batch script is empty!")
    if not body.strip():
        raise ScriptError("Batch script contains only whitespace!")
    if not body.startswith(b"#!"):
        raise ScriptError(
            "This does not look like a batch script.  The first\nline must start with #! followed by the path to an "
            "interpreter.\nFor instance: #!/bin/sh"
        )
    if b"\0" in body:
        raise ScriptError("The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'.")
    if b"\r\n" in body:
        raise ScriptError("Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).")
    if len(body) > MOST_BYTES:
        raise ScriptError(
            f"the script has {len(body)} bytes, and at most {MOST_BYTES} can be carried to the nodes; put "
            "what is large into a file on a shared volume and have the script read that"
        )


def wrapped(command: str) -> str:
    """The script that ``--wrap`` means."""
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"


def directives(name: str, script: str) -> Directives:
    """Raises ScriptError on a quote that has no end and the like."""
    components: List[List[Word]] = [[]]
    ignored: List[int] = []
    warnings: List[str] = []
    over = False
    for number, line in enumerate(script.split("\n"), start=1):
        mark = next((mark for mark in (MARK, OLD_MARK) if line.startswith(mark)), None)
        if mark is None:
            over = over or (bool(line.strip(_BLANKS)) and not line.lstrip(_BLANKS).startswith("#"))
            continue
        if over:
            ignored += [number] if mark == MARK else []
            continue
        if mark == OLD_MARK and not warnings:
            warnings.append("Change from #SLURM to #SBATCH in your script and verify the options are valid in sbatch")
        rest = line[len(mark) :].lstrip(_BLANKS)
        if rest.split(None, 1)[:1] and rest.split(None, 1)[0].lower() in ("hetjob", "packjob"):
            if len(components) == MOST_COMPONENTS:
                raise ScriptError(f"{name}: line {number}: a job has at most {MOST_COMPONENTS} components")
            components.append([])
            rest = rest.split(None, 1)[1] if len(rest.split(None, 1)) > 1 else ""
        components[-1] += [Word(word, number) for word in _words(name, number, rest)]
    return Directives(components, ignored, warnings)


def _words(name: str, number: int, rest: str) -> Iterator[str]:
    position = 0
    while True:
        while position < len(rest) and rest[position] in _BLANKS:
            position += 1
        if position >= len(rest) or rest[position] == "#":
            return
        if rest[position] == ":":
            raise ScriptError(f"{name}: line {number}: Unexpected `:' in [{rest}]")
        word, position = _word(name, number, rest, position)
        yield word
        if position < len(rest) and rest[position] == "#":  # also inside a word: a comment from here on
            return


def _word(name: str, number: int, rest: str, start: int) -> Tuple[str, int]:
    """The word at ``start``, and where it ends. Quotes group, also inside it; a backslash takes what follows."""
    made: List[str] = []
    position, quote = start, ""
    while position < len(rest) and (quote or rest[position] not in _BLANKS):
        letter = rest[position]
        if letter == "\\":
            made.append(rest[position + 1 : position + 2])
            position += 2
        elif quote and letter == quote:
            quote, position = "", position + 1
        elif quote:
            made.append(letter)
            position += 1
        elif letter in "'\"":
            quote, position = letter, position + 1
        elif letter == "#":
            break
        else:
            made.append(letter)
            position += 1
    if quote:
        raise ScriptError(f"{name}: line {number}: Unmatched `{quote}` in [{rest}]")
    return "".join(made), position
