"""Logs as an operator's people read them."""

import json
import logging
import re
import subprocess
from pathlib import Path

import pytest

from lockstep.controller.runtime.logs import JsonFormatter

pytestmark = pytest.mark.process

RUNBOOKS = Path(__file__).parents[4] / "docs" / "runbooks.md"


def line(level: int, message: str) -> str:
    return JsonFormatter().format(logging.LogRecord("lockstep.main", level, "main.py", 1, message, (), None))


def test_the_runbooks_command_finds_errors_and_nothing_else() -> None:
    found = re.search(
        r"logs --selector app.kubernetes.io/name=lockstep --tail=-1 \| grep '([^']+)'", RUNBOOKS.read_text()
    )
    assert found is not None
    said = "\n".join([line(logging.INFO, "leading"), line(logging.ERROR, "the volume is full")])
    grep = subprocess.run(["grep", found[1]], input=said, capture_output=True, text=True, check=False, timeout=20)
    assert [json.loads(text)["message"] for text in grep.stdout.splitlines()] == ["the volume is full"]


@pytest.mark.parametrize(
    "value",
    ["\u00fc", "\x9b2J\x1b[2J\x7f\u2028\u202e", "\udc80", 2**70, {1: "one"}, ["a", {"b": 0.5}], "a\nb"],
    ids=ascii,
)
def test_a_line_is_json_and_moves_no_terminal_whatever_is_in_it(value: object) -> None:
    record = logging.LogRecord("lockstep.main", logging.INFO, "main.py", 1, "%s", (value,), None)
    record.value = value
    written = JsonFormatter().format(record)
    assert re.fullmatch(r"[ -~\x7f]+", written)
    assert json.loads(written)["value"] == ({"1": "one"} if value == {1: "one"} else value)
