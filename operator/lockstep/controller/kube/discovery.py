"""Discovery: which optional kinds of others the API server serves, looked at again and again."""

import abc
import logging
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import KubeError
from lockstep.controller.runtime.clock import Clock

log = logging.getLogger("lockstep.discovery")
_LOOK_EVERY = 60.0
_LOOK_AGAIN = 2.0
S = TypeVar("S")


class Discovery(abc.ABC, Generic[S]):
    """Follows what settings of ``S`` say is served of one ``kind``. ``changed`` is called with every change."""

    kind: ClassVar[str]

    def __init__(self, kube: KubeClient, clock: Clock, settings: S, changed: Callable[[S], None]) -> None:
        self._kube = kube
        self._clock = clock
        self._settings = settings
        self._changed = changed

    @abc.abstractmethod
    def _is_used(self, settings: S) -> bool:
        """Any of the kind would be used: else nothing is asked."""

    @abc.abstractmethod
    async def _found(self, before: S) -> S:
        """The settings with what is served now. Raises KubeError."""

    @abc.abstractmethod
    def _words(self, settings: S) -> str:
        """What follows from them, for the log."""

    async def discover_until_known(self) -> None:
        """Return when discovery has answered once."""
        while not await self.discover():
            await self._clock.sleep(_LOOK_AGAIN)

    async def follow(self) -> None:
        """Look again and again: what is installed or removed later is noticed within a minute."""
        while self._is_used(self._settings):
            await self._clock.sleep(_LOOK_EVERY)
            await self.discover()

    async def discover(self) -> bool:
        """Look once; False: nothing was learnt, and what was known counts on."""
        before = self._settings
        if not self._is_used(before):
            return True
        try:
            self._settings = await self._found(before)
        except KubeError as error:
            log.warning("cannot tell which %s the API server serves: %s", self.kind, error)
            return False
        if self._settings != before:
            log.info("%s", self._words(self._settings))
            self._changed(self._settings)
        return True
