"""The YAML that the command line prints is read by kubectl as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lockstep.cli.yaml_text import as_yaml
from support.helm import StrictLoader

AMBIGUOUS = [
    "1e-3",
    "3E8",
    "1.e5",
    ".5e1",
    "-1e-3",
    "0o17",
    "017",
    "08",
    "y",
    "N",
    "on",
    "null",
    "~",
    "0x1f",
    "1_000",
    "12:30:45",
]


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_text_that_another_reader_takes_for_something_else_is_quoted(text: str) -> None:
    assert as_yaml({"value": text}) == f"value: '{text}'\n"


@pytest.mark.parametrize("text", ["train.py", "1e", "e-3", "yes-man", "0.9.1", "1-3", "--lr"])
def test_other_text_is_left_as_people_write_it(text: str) -> None:
    assert as_yaml({"value": text}) == f"value: {text}\n"


# PyYAML folds the line breaks of Unicode.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029")) | st.sampled_from(AMBIGUOUS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@pytest.mark.slow
@given(VALUES)
def test_whatever_is_written_is_read_back_the_same_by_either_reader(value: Any) -> None:
    text = as_yaml(value)
    assert yaml.safe_load(text) == value
    assert yaml.load(text, StrictLoader) == value
