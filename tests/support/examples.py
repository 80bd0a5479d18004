"""How much of itself a property test does: all that it asks for, or what somebody can wait for."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"
"""The profile of `make check`; tests/conftest.py registers it."""
AT_MOST = 10


def examples(wanted: int) -> int:
    """For ``max_examples``, which goes over the profile."""
    return _capped(wanted)


def steps(wanted: int) -> int:
    """For ``stateful_step_count``."""
    return _capped(wanted)


def _capped(wanted: int) -> int:
    return min(wanted, AT_MOST) if settings.get_current_profile_name() == QUICK else wanted
