"""What is wrong with a pattern is seen without compiling it, and only what is."""

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.pods.log_pattern import plain_mistake

MISTAKES = {
    "link (flapped": "missing ), unterminated subpattern at position 5",
    "link flapped)": "unbalanced parenthesis at position 12",
    "port [0-9": "unterminated character set at position 5",
    "[]": "unterminated character set",
    "[^]": "unterminated character set",
    "link\\": "bad escape (end of pattern)",
    "*.log": "nothing to repeat at position 0",
    "a|*": "nothing to repeat",
    "(+1)": "nothing to repeat",
    "a**": "multiple repeat",
    "a{2}{3}": "multiple repeat",
    "a{3,2}": "min repeat greater than max repeat",
    "(?<link>a)": "write (?P<name>…)",
    "a(?#why": "unterminated comment",
}
FINE = (
    *("", "link flapped", r"link \(flapped", "[(]", "[]a]", "[^]a]", r"[\]a]", "a{2,3}?", "a{,3}", "a{", "a{}", "{x}"),
    *(
        "a*?b+?c??",
        "(?i)link|port",
        "(?P<n>a)(?P=n)",
        "(?:a)+",
        "(?=a)(?!b)(?<=c)(?<!d)",
        "(a)?(?(1)b|c)",
        "a(?#()*",
        r"a(?#\)(b)",
    ),
    "(?x) a # one ( that is none",
)


@pytest.mark.parametrize("pattern", MISTAKES)
def test_ordinary_mistakes_are_named(pattern: str) -> None:
    assert MISTAKES[pattern] in plain_mistake(pattern)
    with pytest.raises(re.error):
        re.compile(pattern)


@pytest.mark.parametrize("pattern", FINE)
def test_what_python_understands_is_left_alone(pattern: str) -> None:
    re.compile(pattern)
    assert plain_mistake(pattern) == ""


@given(st.text("ab()[]{}*+?|\\^$.,01:<>=!P#ix-", max_size=24) | st.text(max_size=24))
def test_nothing_is_refused_that_python_understands(pattern: str) -> None:
    if plain_mistake(pattern):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises((re.error, OverflowError)):
                re.compile(pattern)
