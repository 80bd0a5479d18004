"""Jobs in the operator's image copy what containers saved, as users who are not root, and bring it back."""

from __future__ import annotations

import pytest

from nodes.test_training_archive import server, test_a_gang_whose_shared_tier_was_lost_goes_on_from_the_archive

__all__ = ["server", "test_a_gang_whose_shared_tier_was_lost_goes_on_from_the_archive"]
pytestmark = pytest.mark.containers
