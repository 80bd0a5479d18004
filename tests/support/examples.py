"""How much of itself a property test does: all that it asks for, or what somebody can wait for."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"
"""The profile of `make check`; tests/conftest.py registers it."""
OTHERS = "others"
"""That of `make test-more`, which `make nightly` runs."""
AT_MOST = 10


def examples(wanted: int, *, nightly: int | None = None) -> int:
    """For ``max_examples``, which goes over the profile. ``nightly``: so many where other examples are looked for."""
    if nightly is not None and settings.get_current_profile_name() == OTHERS:
        return nightly
    return _capped(wanted)


def steps(wanted: int) -> int:
    """For ``stateful_step_count``."""
    return _capped(wanted)


def _capped(wanted: int) -> int:
    return min(wanted, AT_MOST) if settings.get_current_profile_name() == QUICK else wanted
