"""What the tests of the web page in a browser share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.web_desk import Desk, seated


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with seated(tmp_path) as found:
        yield found
