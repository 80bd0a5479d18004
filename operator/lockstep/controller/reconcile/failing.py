"""What nothing can be decided for: at first it is tried again, as it may be of the moment; then it is a state."""

import logging

log = logging.getLogger("lockstep.undecidable")
IN_A_ROW = 5
"""Failures after which it is a state: by the back-off of the queue, within two seconds."""
AGAIN = 60.0
"""Seconds until a key of which that is known is reconciled again at the latest."""


class Failing:
    """The keys for which the last decisions failed. What of it is to outlive this process stands in their status."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._logged: dict[str, str] = {}

    def count_failure(self, key: str, error: Exception, *, known: bool) -> bool:
        """One more failure of ``key``. True: it has failed often enough, or is ``known`` by its status to fail."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures < IN_A_ROW and not known:
            return False
        kind = type(error).__name__
        if self._logged.get(key) != kind:
            self._logged[key] = kind
            log.error("nothing can be decided for %s, which is said in its status", key, exc_info=error)
        return True

    def forget(self, key: str) -> None:
        """It is gone, or something could be decided for it."""
        self._failures.pop(key, None)
        if self._logged.pop(key, None) is not None:
            log.warning("nothing is wrong with the decisions for %s any more", key)
