"""Answers that are good for a while: one asker at a time for each question, bounded in number."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from lockstep.controller.runtime.clock import Clock

Answer = TypeVar("Answer")


class Memo(Generic[Answer]):
    """What was answered, by question. ``seconds`` says for how long an answer is good.

    The least recently asked are forgotten beyond ``most``. Who asks what somebody is already finding out waits
    for that; whoever hangs up takes it from nobody.
    """

    def __init__(self, clock: Clock, *, most: int, seconds: Callable[[Answer], float]) -> None:
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._known: OrderedDict[Hashable, tuple[float, Answer]] = OrderedDict()  # good until then
        self._asked: dict[Hashable, asyncio.Task[Answer]] = {}

    def __len__(self) -> int:
        """Answers remembered."""
        return len(self._known)

    def last(self, question: Hashable) -> Answer | None:
        """The last answer, however old."""
        known = self._known.get(question)
        return None if known is None else known[1]

    def fresh(self, question: Hashable) -> Answer | None:
        """The answer, while it is good."""
        good_until, answer = self._known.get(question, (0.0, None))
        if answer is None or self._clock.monotonic() >= good_until:
            return None
        self._known.move_to_end(question)
        return answer

    def keep(self, question: Hashable, answer: Answer) -> None:
        """Remember what was found out elsewhere."""
        self._known[question] = self._clock.monotonic() + self._seconds(answer), answer
        self._known.move_to_end(question)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def forget(self, question: Hashable) -> None:
        """No answer holds any more."""
        self._known.pop(question, None)

    def is_asked(self, question: Hashable) -> bool:
        """Somebody is finding it out."""
        return question in self._asked

    async def answer(self, question: Hashable, find_out: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer, by ``find_out`` where none is good. What that raises is raised and not remembered."""
        known = self.fresh(question)
        if known is not None:
            return known
        task = self._asked.get(question)
        if task is None:
            task = asyncio.ensure_future(self._find_out(question, find_out))
            self._asked[question] = task
            task.add_done_callback(lambda done: self._found(question, done))
        return await asyncio.shield(task)

    async def _find_out(self, question: Hashable, find_out: Callable[[], Awaitable[Answer]]) -> Answer:
        answer = await find_out()
        self.keep(question, answer)
        return answer

    def _found(self, question: Hashable, task: "asyncio.Task[Answer]") -> None:
        self._asked.pop(question, None)
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits for it any more
