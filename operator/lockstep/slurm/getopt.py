"""Command lines as getopt_long reads them: abbreviations, ``--x=v``, ``--x v``, ``-xv``, ``-x v``, and its words."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

NONE, REQUIRED, OPTIONAL = "none", "required", "optional"


class CommandOption(NamedTuple):
    """One option. ``same_as``: another name of the same one."""

    name: str
    short: str = ""
    value: str = REQUIRED
    same_as: str = ""


Found = Tuple[str, Optional[str]]
"""(name of an option, its value; None: it has none)."""


class OptionError(Exception):
    """What the program says of a bad command line, all of its lines."""


def options(table: str) -> List[CommandOption]:
    """From lines of words: ``name``, ``name:`` with a value, ``name?`` with an optional one; ``/x`` its letter, before
    those; ``=name`` whose other name it is."""
    made = []
    for word in table.split():
        word, _, same_as = word.partition("=")
        value = {":": REQUIRED, "?": OPTIONAL}.get(word[-1], NONE)
        name, _, short = word.rstrip(":?").partition("/")
        made.append(CommandOption(name, short, value, same_as))
    return made


def read(program: str, known: Iterable[CommandOption], arguments: Sequence[str]) -> Tuple[List[Found], List[str]]:
    """(the options in order, what begins with the first word that is none): of sbatch and srun, where that is for
    somebody else. Raises OptionError."""
    return _read(program, known, arguments, anywhere=False)


def read_anywhere(
    program: str, known: Iterable[CommandOption], arguments: Sequence[str]
) -> Tuple[List[Found], List[str]]:
    """(the options in order, the words), whatever stands before what, but for what follows ``--``. Raises
    OptionError."""
    return _read(program, known, arguments, anywhere=True)


def _read(
    program: str, known: Iterable[CommandOption], arguments: Sequence[str], anywhere: bool
) -> Tuple[List[Found], List[str]]:
    known = list(known)
    found: List[Found] = []
    words = list(arguments)
    passed: List[str] = []
    while words:
        word = words[0]
        if word == "--":
            return found, passed + words[1:]
        is_word = not word.startswith("-") or word == "-"
        if is_word and not anywhere:
            break
        words.pop(0)
        if is_word:
            passed.append(word)
        elif word.startswith("--"):
            found.append(_long(program, known, word[2:], words))
        else:
            found += _short(program, known, word[1:], words)
    return found, passed + words


def _long(program: str, known: Sequence[CommandOption], text: str, words: List[str]) -> Found:
    name, equals, value = text.partition("=")
    near = [option for option in known if option.name == name] or [o for o in known if o.name.startswith(name)]
    if not near:
        raise _error(program, f"unrecognized option '--{text}'")
    if len({option.same_as or option.name for option in near}) > 1:
        listed = " ".join(f"'--{option.name}'" for option in sorted(near))
        raise _error(program, f"option '--{text}' is ambiguous; possibilities: {listed}")
    option = near[0]
    canonical = option.same_as or option.name
    if option.value == NONE:
        if equals:
            raise _error(program, f"option '--{option.name}' doesn't allow an argument")
        return canonical, None
    if equals:
        return canonical, value
    if option.value == OPTIONAL:  # only glued
        return canonical, None
    if not words:
        raise _error(program, f"option '--{option.name}' requires an argument")
    return canonical, words.pop(0)


def _short(program: str, known: Sequence[CommandOption], letters: str, words: List[str]) -> List[Found]:
    found: List[Found] = []
    while letters:
        letter, letters = letters[0], letters[1:]
        option = next((option for option in known if option.short == letter), None)
        if option is None:
            raise _error(program, f"invalid option -- '{letter}'")
        canonical = option.same_as or option.name
        if option.value == NONE:
            found.append((canonical, None))
            continue
        if option.value == REQUIRED and not letters:
            if not words:
                raise _error(program, f"option requires an argument -- '{letter}'")
            letters = words.pop(0)
        return [*found, (canonical, letters or None)]
    return found


def _error(program: str, words: str) -> OptionError:
    return OptionError(f'{program}: {words}\nTry "{program} --help" for more information\n')
