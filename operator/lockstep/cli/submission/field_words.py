"""What is wrong with one field of a manifest, and what to write there: for what pydantic and API servers say of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

_SHOWN = 60
_MOMENTS = ("notBefore", "deadline")
_VALUE = r'Invalid value: (?:"(?:[^"\\]|\\.)*"|[^\s:]+): '
_OF_SERVERS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"Required value(?:: .*)?", re.DOTALL), "is missing; write it"),
    (re.compile(r"Duplicate value: (.*)", re.DOTALL), r"is there twice: \1; keep one of them"),
    (re.compile(r"Too many: (\d+): must have at most (\d+) items?"), r"has \1 items; \2 are the most"),
    (
        re.compile(r"Too long: (?:must have at most|may not be (?:more|longer) than) (\d+).*"),
        r"is too long; \1 is the most",
    ),
    (re.compile(rf"{_VALUE}.* in body should be greater than or equal to (\S+)"), r"is too small; write \1 or more"),
    (re.compile(rf"{_VALUE}.* in body should be less than or equal to (\S+)"), r"is too large; write \1 or less"),
    (
        re.compile(rf"{_VALUE}.* in body should be at least (\d+) chars long"),
        r"is too short; \1 characters are the least",
    ),
    (
        re.compile(rf"{_VALUE}.* in body should have at least (\d+) (?:items|properties)"),
        r"has too few; \1 are the least",
    ),
    (re.compile(r'Invalid value: (?:"(?:object|array)"|null): (.*)', re.DOTALL), r"\1"),
    (re.compile(r'Invalid value: ("(?:[^"\\]|\\.)*"|[^\s:]+): (.*)', re.DOTALL), r"is \1; \2"),
)
"""Their words for what a schema says, and ours."""
_WRONG_TYPE = re.compile(rf"{_VALUE}.* in body must be of type (\w+): .*", re.DOTALL)
_NO_CHOICE = re.compile(r"Unsupported value: (.*): supported values: (.*)", re.DOTALL)
_TYPES = {"array": "tuple_type", "string": "string_type", "integer": "int_type", "boolean": "bool_type"}


def words_of_server(field: str, message: str, value: Any) -> str:
    """Of a cause in an API server's refusal. ``value`` is what the manifest has there."""
    if found := _WRONG_TYPE.fullmatch(message):
        return wrong_type(field, _TYPES.get(found[1], "model_type"), value)
    if found := _NO_CHOICE.fullmatch(message):
        return no_choice(value, re.findall(r'"([^"]*)"', found[2]))
    for theirs, ours in _OF_SERVERS:
        if theirs.fullmatch(message):
            return theirs.sub(ours, message)
    return message


def words_of_model(field: str, problem: Mapping[str, Any], form: str) -> str:
    """Of an error of pydantic, by its type. ``form``: how the text that belongs there is written, if that is a rule."""
    kind, message, value, context = problem["type"], problem["msg"], problem["input"], problem.get("ctx") or {}
    if kind == "missing":
        return "is missing; write it"
    if kind == "literal_error":
        return no_choice(value, re.findall("'([^']*)'", str(context.get("expected"))))
    if kind == "greater_than_equal":
        return f"is {shown(value)}; write {context['ge']} or more"
    if kind == "less_than_equal":
        return f"is {shown(value)}; write {context['le']} or less"
    if kind == "string_too_short":
        return "is empty; write it, or leave the field out" if not value else f"is shorter than {context['min_length']}"
    if kind in ("string_too_long", "too_long"):
        least = context["max_length"]
        return f"is longer than {least} characters" if kind == "string_too_long" else f"has more than {least} items"
    if kind == "value_error" and field.rpartition(".")[2] in _MOMENTS:
        return "is no time; write it as 2026-12-01T08:00:00Z"
    if kind == "value_error" and not form:
        return str(message).removeprefix("Value error, ")
    if kind in ("value_error", "string_type") and form and value is not None:
        return f"is {shown(value)}; {form}"
    if kind.endswith("_type") or kind in ("int_from_float", "int_parsing"):
        return wrong_type(field, kind, value)
    return f"{message[:1].lower()}{message[1:]}"


def wrong_type(field: str, kind: str, value: Any) -> str:
    """What is of no use there, and what would be. ``kind`` as pydantic names it: ``tuple_type``, ``string_type``, …"""
    if kind in ("tuple_type", "list_type"):
        return _no_list(field, value)
    if kind == "string_type":
        return _no_text(value)
    if kind.startswith("int"):
        return f"is {shown(value)}; write a whole number, e.g. {_whole(value)}, without quotes"
    if kind == "bool_type":
        return f"is {shown(value)}; write true or false, without quotes"
    return f"is {shown(value)}, and has fields of its own; write them below it, one on a line"


def no_choice(value: Any, choices: Sequence[str]) -> str:
    """It is none of the words that may stand there."""
    near = _near(str(value), choices)
    meant = f"write {near}; there " if near else "there "
    return f"is {shown(value)}; {meant}{'are' if len(choices) > 1 else 'is'} {', '.join(choices)}"


def shown(value: Any) -> str:
    """The value as JSON, if it is short."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _near(word: str, choices: Sequence[str]) -> str:
    by_letters = {choice.lower(): choice for choice in choices}
    found = get_close_matches(word.lower()[:_SHOWN], by_letters, 1)
    return by_letters[found[0]] if found else ""


def _no_list(field: str, value: Any) -> str:
    name = field.rpartition(".")[2]
    if isinstance(value, dict) and name == "env":
        key, text = next(iter(value.items()), ("NAME", "value"))
        return f"has to be a list; write each variable as - {{name: {key}, value: {json.dumps(_text(text))}}}"
    if isinstance(value, str):
        try:
            words = shlex.split(value) if name in ("command", "entrypoint") else [value]
        except ValueError:
            words = value.split()
        listed = f"[{', '.join(map(_word, words))}]"
        return (
            f"has to be a list; write {listed}"
            if len(listed) <= 2 * _SHOWN
            else "has to be a list; write [WORD, WORD, …]"
        )
    return f"is {shown(value)}; write a list, with - in front of each item"


def _no_text(value: Any) -> str:
    if value is None:
        return "is empty; write some text, or leave it out"
    if isinstance(value, (bool, int, float)):
        return f'is {shown(value)}, and text is wanted; quote it: "{_text(value)}"'
    return f"is {shown(value)}; write one text"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _word(word: str) -> str:
    return (
        word
        if re.fullmatch(r"[A-Za-z/.][-\w./+=]*", word) and word not in ("true", "false", "yes", "no")
        else json.dumps(word)
    )


def _whole(value: Any) -> int:
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return 2
