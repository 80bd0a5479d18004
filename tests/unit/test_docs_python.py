"""The Python that the documentation shows is Python, and asks the library that the worker brings along for what it has.

That it saves and resumes is shown where the real frameworks are: `make formats`.
"""

import ast
import re
from pathlib import Path

import pytest

from harness.shown_commands import PAGES
from lockstep.worker import lockstep_training

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(found[1], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, found in enumerate(BLOCK.finditer(Path(page).read_text(encoding="utf-8")), 1)
]


@pytest.mark.parametrize("text", BLOCKS)
def test_python_that_is_shown_is_python_and_calls_what_there_is(text: str) -> None:
    tree = ast.parse(text)
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lockstep"
    }
    assert asked <= {*lockstep_training.__all__}


def test_python_is_found_at_all() -> None:
    assert len(BLOCKS) > 6
