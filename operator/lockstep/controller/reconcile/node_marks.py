"""Writes what is remembered of nodes: annotations that people and other runs read, and a taint where wanted."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from lockstep.api.base import names, nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import NODES
from lockstep.controller.store.store import Store
from lockstep.core.failures.node_memory import NodeMarks, marks_now, marks_with, marks_without
from lockstep.core.model.cluster_objects import parse_node
from lockstep.core.model.plan import ForgiveFailures, RememberFailure
from lockstep.core.model.snapshot import NodeView
from lockstep.core.model.tunables import Mode, Tunables

log = logging.getLogger("lockstep.nodes")
_TRIES = 4
REST = 60.0
"""Seconds for which a node that could not be written is let alone: marks are asked for with every cycle."""
REST_WITHOUT_RIGHTS = 600.0
EVERY_NODE = ""


class NodeMarker:
    """Reads a node afresh and writes it under its resourceVersion, so that nobody's change is lost.

    Nothing depends on a mark: one that cannot be written, or that takes long behind a webhook that hangs, holds up no
    run and no admission, and is asked for again.
    """

    def __init__(self, kube: KubeClient, store: Store, clock: Clock, tunables: Callable[[], Tunables]) -> None:
        self._kube = kube
        self._store = store
        self._clock = clock
        self._tunables = tunables
        self._rests: dict[str, float] = {}  # node, or all of them -> monotonic seconds
        self._under_way: dict[Hashable, asyncio.Task[None]] = {}  # by what is wanted

    def begin_to_note(self, wanted: RememberFailure | ForgiveFailures) -> None:
        """Have ``note`` done beside all else, unless it is under way."""
        self._begin(wanted, lambda: self.note(wanted))

    def begin_to_forgive(self) -> None:
        """Have ``forgive`` done beside all else, unless it is under way."""
        self._begin(EVERY_NODE, self.forgive)

    def stop(self) -> None:
        """Nothing more is written."""
        for task in self._under_way.values():
            task.cancel()

    def _begin(self, wanted: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if wanted in self._under_way:
            return
        task = self._under_way[wanted] = asyncio.create_task(work())

        def ended(_: asyncio.Task[None]) -> None:
            del self._under_way[wanted]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("marks of nodes are left as they are for now: %r", error)

        task.add_done_callback(ended)

    async def note(self, wanted: RememberFailure | ForgiveFailures) -> None:
        """Write on a node what a decision wants it to carry, or no longer."""
        if isinstance(wanted, RememberFailure):
            await self.remember(wanted)
        else:
            await self.forgive_run(wanted)

    async def remember(self, wanted: RememberFailure) -> None:
        """Have the node carry a first failure. A node that is gone has nothing to remember."""

        def marks(node: NodeView) -> NodeMarks | None:
            if node.uid != wanted.uid or wanted.failure in node.failures:
                return None
            taint = self._tunables().taint_suspects
            return marks_with(node, wanted.failure, self._store.all_nodes(), taint, self._clock.now())

        await self._mark(wanted.node, marks)

    async def forgive_run(self, wanted: ForgiveFailures) -> None:
        """Take failures off a node that were the program's."""

        def marks(node: NodeView) -> NodeMarks | None:
            if node.uid != wanted.uid:
                return None
            taint = self._tunables().taint_suspects
            return marks_without(node, wanted.failures, self._store.all_nodes(), taint, self._clock.now())

        await self._mark(wanted.node, marks)

    async def forgive(self) -> None:
        """Take the mark off nodes whose day is over."""
        if self._tunables().mode is Mode.REPORT_ONLY:
            return
        now = self._clock.now()
        for node in [node for node in self._store.all_nodes() if marks_now(node, now) is not None]:
            await self._mark(node.name, lambda fresh: marks_now(fresh, now))

    async def _mark(self, name: str, marks: Callable[[NodeView], NodeMarks | None]) -> None:
        if any(self._rests.get(each, 0.0) > self._clock.monotonic() for each in (name, EVERY_NODE)):
            return
        for tries_left in reversed(range(_TRIES)):
            try:
                await self._write(name, marks)
            except ApiError as error:
                if error.status == 404:
                    self._rests.pop(name, None)
                    return
                if error.status == 409 and tries_left:
                    continue
                self._let_alone(name, error)
            except KubeError as error:
                self._let_alone(name, error)
            except ValueError as error:  # such as an answer that cannot be read; the lease that is lost ends more
                self._store.left_out.note(NODES.plural, name, "", error)
                self._rests[name] = self._clock.monotonic() + REST
            else:
                self._rests.pop(name, None)
                self._rests.pop(EVERY_NODE, None)
            return

    async def _write(self, name: str, marks: Callable[[NodeView], NodeMarks | None]) -> None:
        text = await self._kube.get(NODES, name)
        wanted = marks(parse_node(text).view)
        if wanted is not None:
            self._store.apply_node(await self._kube.patch(NODES, name, _patch(nesting.loads(text), wanted)))
            log.info("node marked", extra={"node": name, "suspect": wanted.annotations[names.ANNOTATION_SUSPECT]})

    def _let_alone(self, name: str, error: KubeError) -> None:
        """Try again later, and say so when it has begun rather than with every try."""
        lacks_rights = isinstance(error, ApiError) and error.status == 403
        node, rest = (EVERY_NODE, REST_WITHOUT_RIGHTS) if lacks_rights else (name, REST)
        level = logging.INFO if node in self._rests else logging.WARNING
        log.log(level, "failures of nodes are not remembered on %s for now: %s", node or "any of them", error)
        there = {EVERY_NODE, *(each.name for each in self._store.all_nodes())}
        self._rests = {each: until for each, until in self._rests.items() if each in there}
        self._rests[node] = self._clock.monotonic() + rest


def _patch(node: dict[str, Any], wanted: NodeMarks) -> dict[str, Any]:
    """A merge patch of exactly this version of the node."""
    metadata = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": dict(wanted.annotations)}
    before = node["spec"].get("taints", [])
    taints = [taint for taint in before if taint["key"] != names.TAINT_SUSPECT]
    if wanted.tainted:
        taints.append({"key": names.TAINT_SUSPECT, "value": "", "effect": "PreferNoSchedule"})
    patch: dict[str, Any] = {"metadata": metadata}
    if {(t["key"], t["effect"]) for t in taints} != {(t["key"], t["effect"]) for t in before}:
        patch["spec"] = {"taints": taints}
    return patch
