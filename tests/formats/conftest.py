"""These tests need the real libraries: `make formats`. Elsewhere they are not collected."""

import importlib.util
from collections.abc import Iterator

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from layouts import LAYOUTS
    from library import Library

    @pytest.fixture(scope="session", params=LAYOUTS)
    def library(request: pytest.FixtureRequest) -> Iterator[Library]:
        """Each of the real libraries in turn, imported once."""
        with Library(request.param) as opened:
            yield opened
