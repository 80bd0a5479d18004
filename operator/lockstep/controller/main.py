"""The operator process: wires the parts together, leads when it holds the lease, ends when it loses it.

Newcomers: events come in through ``handlers`` and ``informer``, end in ``store`` and become keys in
``workqueue``; ``reconcile`` takes a key, asks the pure ``core.decide`` and gives the Plan to ``execute``.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson
import uvloop

from lockstep.api import names
from lockstep.controller.archive_jobs import parse_job
from lockstep.controller.clock import SystemClock
from lockstep.controller.config import ConfigError, OperatorConfig, load
from lockstep.controller.credentials import load_credentials
from lockstep.controller.election import Election, LostLeadershipError
from lockstep.controller.events import EventRecorder
from lockstep.controller.execute import Executor
from lockstep.controller.gangs import StoredGangs
from lockstep.controller.handlers import OwnKinds
from lockstep.controller.health import Health, application
from lockstep.controller.history import History
from lockstep.controller.informer import Informer
from lockstep.controller.kube import ApiError, KubeClient
from lockstep.controller.kueue import KueueApi
from lockstep.controller.listener import Listener
from lockstep.controller.logs import configure_logging
from lockstep.controller.metrics import Metrics, Sources
from lockstep.controller.node_marks import NodeMarker
from lockstep.controller.parse import parse_namespace, parse_node, parse_pod, parse_priority_class
from lockstep.controller.pod_groups import PodGroupApi
from lockstep.controller.reconcile import Reconciler
from lockstep.controller.recoveries import Recoveries
from lockstep.controller.reports import ReportBook
from lockstep.controller.resources import JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, SECRETS
from lockstep.controller.run_set_reconcile import RunSetReconciler
from lockstep.controller.store import Store
from lockstep.controller.tallies import Tallies
from lockstep.controller.tls import SECRET_NAME, SecretStore, ensure_material, keep_renewed, server_context
from lockstep.controller.trust import TokenReviews
from lockstep.controller.usage import UsageKeeper
from lockstep.controller.worker_archive import worker_archive
from lockstep.controller.workerapi import WorkerApi
from lockstep.controller.workqueue import WorkQueue
from lockstep.core.gang_settings import GangSettings
from lockstep.core.pod_group_settings import PodGroupSettings
from lockstep.core.tunables import Mode, Tunables

log = logging.getLogger("lockstep.main")
_RESYNC_EVERY = 300.0
_MODE_EVERY = 5.0
_SYNC_POLL = 0.05


class Operator:
    """One operator process."""

    def __init__(self, config: OperatorConfig, kubeconfig: str | None, config_path: str | None = None) -> None:
        self.config = config
        self._config_path = config_path
        self.clock = SystemClock()
        self.kube = KubeClient(lambda: load_credentials(kubeconfig), self.clock)
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock, config.namespaces)
        self.book = ReportBook(self.clock, self.store.worker_reported, self.store.gang_completed)
        self.instance = f"{config.identity or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self.election = Election(
            self.kube,
            self.clock,
            namespace=config.namespace,
            name=config.lease_name,
            identity=self.instance,
        )
        self.kube.write_guard = self.election.check
        self.events = EventRecorder(self.kube, self.clock, self.instance)
        self.tallies = Tallies()
        self.recoveries = Recoveries(self.clock, self.book.reports, self.tallies)
        self.tunables = Tunables()
        self.history = History(config.history.path, config.history.max_bytes, self.clock, self.tallies.drop_history)
        nodes = NodeMarker(self.kube, self.store, self.clock, lambda: self.tunables)
        self.reconciler = Reconciler(
            kube=self.kube,
            store=self.store,
            book=self.book,
            queue=self.queue,
            executor=Executor(
                self.kube,
                self.store,
                self.book,
                self.events,
                self.tallies,
                self.recoveries,
                self.clock,
                nodes,
                self.history,
            ),
            nodes=nodes,
            recoveries=self.recoveries,
            usage=UsageKeeper(self.kube, self.clock, config.namespace),
            clock=self.clock,
            tunables=lambda: self.tunables,
            tallies=self.tallies,
            run_sets=RunSetReconciler(
                self.kube, self.store, self.events, self.queue, self.clock, lambda: self.tunables
            ),
        )
        self.kueue = KueueApi(self.kube, self.store.kueue, self.clock)
        self.pod_group_api = PodGroupApi(self.kube, self.clock, config.pod_groups.settings(), self._use_pod_groups)
        self.own_kinds = OwnKinds(self.store, self.kube, self.clock)
        self.informers: tuple[Informer[Any], ...] = (
            Informer(
                "gang-pods", self.kube, self.clock, PODS, parse_pod, self.store.gang_pods, labels=names.LABEL_RUN_UID
            ),
            Informer(
                "other-pods",
                self.kube,
                self.clock,
                PODS,
                parse_pod,
                self.store.other_pods,
                labels=f"!{names.LABEL_RUN_UID}",
                fields="spec.nodeName!=",
            ),
            Informer(
                "archive-jobs",
                self.kube,
                self.clock,
                JOBS,
                parse_job,
                self.store.archive_jobs.cache,
                labels=names.LABEL_ARCHIVE_OF,
            ),
            Informer("nodes", self.kube, self.clock, NODES, parse_node, self.store.nodes),
            Informer("namespaces", self.kube, self.clock, NAMESPACES, parse_namespace, self.store.namespaces),
            Informer(
                "priority-classes",
                self.kube,
                self.clock,
                PRIORITY_CLASSES,
                parse_priority_class,
                self.store.priority_classes,
            ),
        )
        self.acts = False  # leads, and has listed everything since
        self.take_signals: Callable[[], None] = lambda: None  # whoever runs this in a process says how

    async def run(self) -> None:
        """Serve until cancelled or until leadership is lost. Raises what made it impossible to go on."""
        async with self.kube:
            secrets = self._secrets()
            hosts = self._worker_hosts()
            material = await ensure_material(secrets, self.config.namespace, hosts, self.clock.now())
            context = server_context(material)
            self.tunables = self.config.tunables(
                GangSettings(
                    operator_url=self.config.worker_url,
                    worker_archive=worker_archive(),
                    ca_certificate=material.ca_bundle,
                    local_storages=self.config.local_storage,
                    check_gpus=self.config.check_gpus,
                    priority_class=self.config.priority_class or names.GANG_PRIORITY_CLASS,
                )
            )
            gangs = StoredGangs(self.store)
            reviews = TokenReviews(self.kube.post, gangs, self.clock)
            workers = WorkerApi(
                reviews=reviews,
                gangs=gangs,
                book=self.book,
                clock=self.clock,
                epoch=lambda: self.election.epoch if self.acts and self.election.is_leading() else None,
                heartbeat_seconds=self.tunables.heartbeat_seconds,
                fence_seconds=self.tunables.fence_seconds,
            )
            metrics = Metrics(self._sources(workers, reviews), self.tallies)
            health = Health(
                leading=self.election.is_leading,
                oldest_due_age=self.queue.oldest_due_age,
                informer_ages=self._informer_ages,
            )
            async with contextlib.AsyncExitStack() as stack:
                listener = await Listener.open(
                    workers.application(),
                    self.config.worker_listen,
                    self.config.worker_port,
                    context,
                )
                stack.push_async_callback(listener.close)
                probes = await Listener.open(
                    application(health, metrics), self.config.metrics_listen, self.config.metrics_port
                )
                stack.push_async_callback(probes.close)
                log.info("listening", extra={"workers": listener.port, "metrics": probes.port})
                renewal = keep_renewed(context, secrets, self.config.namespace, hosts, self.clock)
                await self._serve(renewal)

    async def _serve(self, renewal: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(renewal, name="certificates")
                for informer in self.informers:
                    tasks.create_task(informer.run(), name=informer.name)
                tasks.create_task(self.own_kinds.watch(self.take_signals), name="kopf")
                tasks.create_task(self.own_kinds.compare(), name="list-diff")
                tasks.create_task(self.kueue.run(), name="kueue")
                tasks.create_task(self.events.post_all(), name="events")
                tasks.create_task(self._follow_mode(), name="mode")
                tasks.create_task(self.pod_group_api.follow(), name="pod-groups")
                tasks.create_task(self._lead(), name="lead")
        except asyncio.CancelledError:
            if await self.reconciler.stop():
                await self.election.release()  # nothing of ours acts any more
            else:
                log.warning("the lease is left to run out: the result of an admission is not known yet")
            await asyncio.to_thread(self.history.close)
            raise

    async def _lead(self) -> None:
        await self.election.acquire()
        log.info("leading", extra={"identity": self.instance, "epoch": list(self.election.epoch)})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.election.hold(), name="lease")
            tasks.create_task(self._act(), name="act")

    async def _act(self) -> None:
        """Runs are listed after the pods: a run's status is then never older than the pods it is held against."""
        await self.pod_group_api.look_until_known()
        for informer in self.informers:
            await informer.synced.wait()
        # A standby's watch may lag behind what the last leader wrote: a quorum has the last word.
        await asyncio.gather(*(informer.refresh() for informer in self.informers))
        await self.kueue.refresh()
        await self.own_kinds.list_now()
        while not self.store.synced:
            await self.clock.sleep(_SYNC_POLL)
        self.reconciler.lead()
        self.acts = True
        async with asyncio.TaskGroup() as tasks:
            workers = self.config.reconcile_workers
            tasks.create_task(self.queue.run(self.reconciler.reconcile, workers, fatal=(LostLeadershipError,)))
            tasks.create_task(self._resync())

    async def _resync(self) -> None:
        while True:
            await self.clock.sleep(_RESYNC_EVERY)
            self.store.touch_all()
            self.book.retain(self.store.runs.uids())

    async def _follow_mode(self) -> None:
        """The stop switch works without a restart: the mode in the file counts within seconds."""
        while True:
            await self.clock.sleep(_MODE_EVERY)
            try:
                mode = Mode((await asyncio.to_thread(load, self._config_path)).mode)
            except ConfigError as error:
                log.warning("the configuration cannot be read, mode stays %s: %s", self.tunables.mode, error)
                continue
            if mode is not self.tunables.mode:
                log.warning("mode is now %s", mode)
                self.tunables = dataclasses.replace(self.tunables, mode=mode)
                self.store.touch_all()

    def _use_pod_groups(self, settings: PodGroupSettings) -> None:
        """For launches from now on; gangs that have their nodes keep what they were given."""
        self.tunables = dataclasses.replace(self.tunables, pod_groups=settings)
        self.store.touch_all()

    def _informer_ages(self) -> Mapping[str, float]:
        now = self.clock.monotonic()
        ages = {
            informer.name: now - informer.last_heard if informer.synced.is_set() else float("inf")
            for informer in self.informers
        }
        return {**ages, "own-kinds": now - self.own_kinds.last_heard}

    def _sources(self, workers: WorkerApi, reviews: TokenReviews) -> Sources:
        return Sources(
            runs=lambda: self.store.runs,
            queues=lambda: self.store.queues,
            run_sets=lambda: self.store.run_sets.cache,
            summary=self.book.summary,
            workers=self.book.worker_count,
            leading=self.election.is_leading,
            queue_depth=lambda: len(self.queue),
            queue_failing=lambda: self.queue.failing,
            oldest_due_age=self.queue.oldest_due_age,
            informer_ages=self._informer_ages,
            api_requests=self.kube.requests,
            worker_requests=workers.answered,
            token_reviews=reviews.outcomes,
        )

    def _worker_hosts(self) -> list[str]:
        host = urlsplit(self.config.worker_url).hostname
        return list(dict.fromkeys(filter(None, (host, *self.config.worker_hosts))))

    def _secrets(self) -> SecretStore:
        namespace = self.config.namespace

        async def read() -> Mapping[str, Any] | None:
            try:
                return dict(orjson.loads(await self.kube.get(SECRETS, SECRET_NAME, namespace)))
            except ApiError as error:
                if error.status == 404:
                    return None
                raise

        async def create(body: Mapping[str, Any]) -> bool:
            return await _unless_conflict(self.kube.create(SECRETS, body, namespace, guarded=False))

        async def replace(body: Mapping[str, Any]) -> bool:
            return await _unless_conflict(self.kube.replace(SECRETS, SECRET_NAME, body, namespace, guarded=False))

        return SecretStore(read, create, replace)


async def _unless_conflict(write: Any) -> bool:
    try:
        await write
    except ApiError as error:
        if error.status == 409:
            return False
        raise
    return True


async def _run_until_signalled(operator: Operator) -> int:
    loop = asyncio.get_running_loop()
    main = asyncio.ensure_future(operator.run())

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, main.cancel)

    take_signals()
    operator.take_signals = take_signals
    try:
        await main
    except asyncio.CancelledError:
        return 0
    except BaseExceptionGroup as group:
        lost, rest = group.split(LostLeadershipError)
        if lost is not None:
            # Whatever this process still has in hand must not reach the API server.
            log.error("leadership is lost: this process ends")
            os._exit(3)
        raise rest if rest is not None else group from None
    return 1


def main() -> None:
    """Entry point of ``lockstep-operator``."""
    parser = argparse.ArgumentParser(prog="lockstep-operator", description=__doc__.partition("\n")[0])
    parser.add_argument("--config", help="YAML file; see docs/configuration.md")
    parser.add_argument("--kubeconfig", help="kubeconfig file; the pod's service account when left out")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    arguments = parser.parse_args()
    configure_logging(arguments.log_level)
    try:
        config = load(arguments.config)
    except ConfigError as error:
        sys.exit(f"lockstep-operator: {error}")
    if arguments.kubeconfig:
        os.environ["KUBECONFIG"] = arguments.kubeconfig  # kopf reads it too
    kubeconfig = arguments.kubeconfig or os.environ.get("KUBECONFIG") or None
    gc.freeze()  # modules and models stay for ever: the collector need not walk them again with each gang
    sys.exit(uvloop.run(_run_until_signalled(Operator(config, kubeconfig, arguments.config))))


if __name__ == "__main__":
    main()
