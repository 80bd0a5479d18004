"""The operator: wires the parts together, leads when it holds the lease, ends when it loses it.

Newcomers: events come in through ``handlers`` and ``informer``, end in ``store`` and become keys in
``workqueue``; ``reconcile`` takes a key, asks the pure ``core.decide`` and gives the Plan to ``execute``.
"""

import asyncio
import contextlib
import dataclasses
import logging
import socket
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from lockstep.config import ConfigError, OperatorConfig, load
from lockstep.controller.handlers import registry
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import load_credentials
from lockstep.controller.kube.election import Election
from lockstep.controller.kube.errors import KubeError
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.leader_endpoint import LeaderEndpoint
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.metrics.exporter import Metrics, MetricSources
from lockstep.controller.metrics.health import Health, application
from lockstep.controller.reconcile.config_maps import ensure_everywhere
from lockstep.controller.reconcile.execute import Executor
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.node_marks import NodeMarker
from lockstep.controller.reconcile.pace import ProcessorTime, RunPace
from lockstep.controller.reconcile.reconcile import Reconciler
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.lag import LagMeter
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.runtime.tracing import tracer_for
from lockstep.controller.store.cluster_informers import cluster_informers
from lockstep.controller.store.job_ids import JobIds
from lockstep.controller.store.kueue import KueueApi
from lockstep.controller.store.own_kinds import OwnKinds
from lockstep.controller.store.pod_groups import PodGroupApi
from lockstep.controller.store.scale_ups import ProvisioningApi
from lockstep.controller.store.store import Store
from lockstep.controller.store.usage import UsageKeeper
from lockstep.controller.store.worker_authz_view import WorkerAuthzView
from lockstep.controller.workers.api import WorkerApi
from lockstep.controller.workers.certificates import Certificates, first_material, secret_in_cluster
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.step_certificates import StepCertificates
from lockstep.controller.workers.tls import server_context
from lockstep.controller.workers.trust import TokenReviews
from lockstep.controller.workers.worker_archive import worker_archive
from lockstep.core.model.assignment import is_held
from lockstep.core.model.pod_group_settings import PodGroupSettings
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.pods.gang import ca_config_map

if TYPE_CHECKING:
    from lockstep.controller.web.server import WebPage

log = logging.getLogger("lockstep.operator")
_RESYNC_EVERY = 300.0
_READ_AGAIN = 1.0
_MODE_EVERY = 5.0
_SYNC_POLL = 0.05


class Operator:
    """One operator process."""

    def __init__(self, config: OperatorConfig, kubeconfig: str | None, config_path: str | None = None) -> None:
        self.config = config
        self._config_path = config_path
        self._unreadable = ""  # why the file cannot be read now
        self.clock = SystemClock()
        credentials = partial(load_credentials, kubeconfig)
        self.left_out = LeftOut()
        self.kube = KubeClient(credentials, self.clock, self.left_out)
        self.meter = LagMeter(self.clock)
        self.kube.wrote = self.meter.wrote
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock, config.namespaces, self.left_out)
        self.store.placed = self.meter.placed
        self.book = ReportBook(self.clock, self.store.worker_reported, self.store.gang_completed)
        self.step_certificates = StepCertificates(self.clock)
        self.instance = f"{config.identity or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self.election = Election(
            self.kube,
            self.clock,
            namespace=config.namespace,
            name=config.lease_name,
            identity=self.instance,
            duration=config.lease_duration,
        )
        self.kube.write_guard = self.election.check
        self.kube.write_seconds = self.election.seconds_left
        self.events = EventRecorder(self.kube, self.clock, self.instance)
        self.tallies = Tallies()
        self.tracer = tracer_for(config.tracing, self.instance)
        self.recoveries = Recoveries(self.clock, self.book.reports, self.tallies, self.tracer)
        self.tunables = Tunables()
        self.history = History(config.history.path, config.history.max_bytes, self.clock, self.tallies.drop_history)
        self.store.run_gone = self._record_deleted
        pace = RunPace(self.clock, self.tallies, ProcessorTime(), config.progress_write_interval)
        job_ids = JobIds(self.kube, self.store, config.namespace)
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
                self.queue,
                pace,
                job_ids,
                look_up_secrets=config.look_up.secrets,
            ),
            nodes=nodes,
            recoveries=self.recoveries,
            usage=UsageKeeper(self.kube, self.clock, config.namespace),
            clock=self.clock,
            tunables=lambda: self.tunables,
            tallies=self.tallies,
            run_sets=RunSetReconciler(
                self.kube, self.store, self.events, self.queue, self.clock, lambda: self.tunables, pace, job_ids
            ),
            tracer=self.tracer,
            lag=self.meter.lag,
        )
        self.events.overloaded = self.meter.is_overloaded
        self.kueue = KueueApi(self.kube, self.store.kueue, self.clock, config.kueue.enabled)
        self.pod_group_api = PodGroupApi(
            self.kube, self.clock, PodGroupSettings(**dict(config.pod_groups)), self._use_pod_groups
        )
        self.provisioning_api = ProvisioningApi(
            self.kube, self.clock, ScaleUpSettings(**dict(config.scale_up)), self._use_scale_up
        )
        self.own_kinds = OwnKinds(self.store, self.kube, self.clock, credentials)
        self.informers = cluster_informers(self.kube, self.clock, self.store)
        self.web = self._web_page(CallerApi(credentials, self.clock)) if config.web.enabled else None
        self.acts = False  # leads, and has listed everything since
        self.endpoint: LeaderEndpoint | None = None  # where workers find this replica while it leads, if it can say
        self.take_signals: Callable[[], None] = lambda: None  # whoever runs this in a process says how

    async def run(self) -> None:
        """Serve until cancelled or until leadership is lost. Raises what made it impossible to go on."""
        self.tunables = self.config.tunables(self.config.gang(worker_archive()))
        gangs = WorkerAuthzView(self.store)
        reviews = TokenReviews(self.kube.post, gangs, self.clock)
        workers = self._worker_api(gangs, reviews)
        metrics = Metrics(self._sources(workers, reviews), self.tallies)
        health = Health(
            leading=self.election.is_leading,
            oldest_due_age=self.queue.oldest_due_age,
            informer_ages=self._informer_ages,
        )
        async with self.kube, contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, self.tracer.close)
            # First, as the kubelet would end a process that waits for the API server and does not say so.
            probes = await Listener.open(
                application(health, metrics), self.config.metrics_listen, self.config.metrics_port
            )
            stack.push_async_callback(probes.close)
            secrets, hosts = secret_in_cluster(self.kube, self.config.namespace), self.config.serving_hosts
            material = await first_material(secrets, self.config.namespace, hosts, self.clock)
            self._use_authorities(material.ca_bundle)
            self.step_certificates.use(material.steps_key)
            context = server_context(material)
            certificates = Certificates(
                context,
                secrets,
                self.config.namespace,
                hosts,
                self.clock,
                overlap=self.config.ca_overlap,
                leads=self._acts_as_leader,
                trust=self._use_authorities,
                steps=self.step_certificates.use,
                publish=self._publish_authorities,
            )
            listener = await Listener.open(
                workers.application(),
                self.config.worker_listen,
                self.config.worker_port,
                context,
                workers.connections,
            )
            stack.push_async_callback(listener.close)
            self.endpoint = self._leader_endpoint(listener.port)
            log.info("listening", extra={"workers": listener.port, "metrics": probes.port})
            if self.web is not None:
                page = await self._open_page(self.web, context)
                stack.push_async_callback(page.close)
            await self._serve(certificates)

    async def _open_page(self, web: "WebPage", context: ssl.SSLContext) -> Listener:
        where = self.config.web
        tls = None if where.is_local else context
        page = await Listener.open(web.application(), where.listen, where.port, tls, web.connections)
        log.info("serving the web page", extra={"web": page.port, "tls": tls is not None})
        return page

    async def _serve(self, certificates: Certificates) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(certificates.keep(), name="certificates")
                tasks.create_task(self.meter.watch(), name="lag")
                for informer in self.informers:
                    tasks.create_task(informer.run(), name=informer.name)
                tasks.create_task(self.own_kinds.watch(registry, self.take_signals), name="kopf")
                tasks.create_task(self.own_kinds.compare(), name="list-diff")
                tasks.create_task(self.kueue.run(), name="kueue")
                tasks.create_task(self.events.post_all(), name="events")
                tasks.create_task(self._follow_mode(), name="mode")
                tasks.create_task(self.pod_group_api.follow(), name="pod-groups")
                tasks.create_task(self.provisioning_api.follow(), name="provisioning-requests")
                if self.web is not None:
                    tasks.create_task(self.web.losses.follow(), name="losses")
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
            if self.endpoint is not None:
                tasks.create_task(self.endpoint.keep(), name="endpoint")
            tasks.create_task(self._act(), name="act")

    async def _act(self) -> None:
        """Runs are listed after the pods: a run's status is then never older than the pods it is held against."""
        await self.pod_group_api.discover_until_known()
        await self.provisioning_api.discover_until_known()
        for synced in (*(informer.synced for informer in self.informers), self.own_kinds.runs.synced):
            await synced.wait()
        # A standby's watch may lag behind what the last leader wrote: a quorum has the last word.
        await asyncio.gather(*(self._once_answered(informer.refresh) for informer in self.informers))
        await self._once_answered(self.kueue.refresh)
        await self._once_answered(self.own_kinds.list_now)
        while not self.store.synced:
            await self.clock.sleep(_SYNC_POLL)
        self.reconciler.lead()
        self.acts = True
        async with asyncio.TaskGroup() as tasks:
            workers = self.config.reconcile_workers
            tasks.create_task(self.queue.run(self.reconciler.reconcile, workers))
            tasks.create_task(self._resync())

    async def _once_answered(self, read: Callable[[], Awaitable[object]]) -> None:
        """An API server that is busy at a takeover is asked again: a new process would know less, and ask for more."""
        while True:
            try:
                await read()
            except KubeError as error:
                log.warning("this replica leads, but cannot act before it has read everything: %s", error)
                await self.clock.sleep(_READ_AGAIN)
            else:
                return

    async def _resync(self) -> None:
        while True:
            await self.clock.sleep(_RESYNC_EVERY)
            self.store.touch_all()
            self.book.retain(self.store.runs.cache.uids())

    async def _follow_mode(self) -> None:
        """The stop switch works without a restart: the mode in the file counts within seconds."""
        while True:
            await self.clock.sleep(_MODE_EVERY)
            await self._read_mode()

    async def _read_mode(self) -> None:
        try:
            mode = Mode((await asyncio.to_thread(load, self._config_path)).mode)
        except ConfigError as error:
            if str(error) != self._unreadable:  # once per mistake, not once per look
                log.warning("the configuration cannot be read, mode stays %s: %s", self.tunables.mode, error)
            self._unreadable = str(error)
            return
        if self._unreadable:
            log.warning("the configuration can be read again")
        self._unreadable = ""
        if mode is not self.tunables.mode:
            log.warning("mode is now %s", mode)
            self.tunables = dataclasses.replace(self.tunables, mode=mode)
            self.store.touch_all()

    def _use_pod_groups(self, settings: PodGroupSettings) -> None:
        """For launches from now on; gangs that have their nodes keep what they were given."""
        self.tunables = dataclasses.replace(self.tunables, pod_groups=settings)
        self.store.touch_all()

    def _use_scale_up(self, settings: ScaleUpSettings) -> None:
        """For runs that begin to ask; those that do go on as they began."""
        self.tunables = dataclasses.replace(self.tunables, scale_up=settings)
        self.store.touch_all()

    def _use_authorities(self, bundle: str) -> None:
        """For launches from now on; gangs that run get it by ``_publish_authorities``."""
        gang = dataclasses.replace(self.tunables.gang, ca_certificate=bundle)
        self.tunables = dataclasses.replace(self.tunables, gang=gang)

    async def _publish_authorities(self) -> bool:
        holding = {run.namespace for run in self.store.runs.cache if is_held(run.status.assignment)}
        return await ensure_everywhere(self.kube, holding, lambda each: ca_config_map(each, self.tunables.gang))

    def _acts_as_leader(self) -> bool:
        return self.acts and self.election.is_leading()

    def _record_deleted(self, run: RunView) -> None:
        if self._acts_as_leader():  # each replica hears of it
            self.history.run_gone(run, self.tunables)

    def _informer_ages(self) -> Mapping[str, float]:
        now = self.clock.monotonic()
        ages = {
            informer.name: now - informer.last_heard if informer.synced.is_set() else float("inf")
            for informer in self.informers
        }
        return {**ages, **self.own_kinds.ages()}

    def _sources(self, workers: WorkerApi, reviews: TokenReviews) -> MetricSources:
        return MetricSources(
            now=self.clock.now,
            runs=lambda: self.store.runs.cache,
            queues=lambda: self.store.queues.cache,
            run_sets=lambda: self.store.run_sets.cache,
            nodes=lambda: self.store.nodes,
            accelerators=tuple(self.tunables.accelerators),
            node_flaps=self.store.node_flaps.recent,
            node_losses=lambda: self.store.node_flaps.losses,
            disruption=lambda: self.reconciler.disruption,
            slowness=self.meter.slowness,
            events_dropped=lambda: self.events.dropped,
            mode=lambda: self.tunables.mode,
            configuration_unreadable=lambda: bool(self._unreadable),
            summary=self.book.summary,
            workers=self.book.worker_count,
            leading=self.election.is_leading,
            leads_since=lambda: self.reconciler.leads_since if self.acts else self.clock.now(),
            queue_depth=lambda: len(self.queue),
            queue_failing=lambda: self.queue.failing,
            oldest_due_age=self.queue.oldest_due_age,
            informer_ages=lambda: {**self._informer_ages(), **self.kueue.ages()},
            api_requests=self.kube.requests,
            left_out=self.left_out,
            worker_requests=workers.answered,
            token_reviews=reviews.outcomes,
        )

    def _worker_api(self, gangs: WorkerAuthzView, reviews: TokenReviews) -> WorkerApi:
        return WorkerApi(
            reviews=reviews,
            gangs=gangs,
            book=self.book,
            clock=self.clock,
            epoch=lambda: self.election.epoch if self._acts_as_leader() else None,
            heartbeat_seconds=self.tunables.heartbeat_seconds,
            fence_seconds=self.tunables.fence_seconds,
            steps=self.step_certificates,
        )

    def _leader_endpoint(self, port: int) -> LeaderEndpoint | None:
        config = self.config
        if not config.worker_address:
            return None
        return LeaderEndpoint(
            self.kube,
            self.clock,
            namespace=config.namespace,
            service=config.worker_service,
            address=config.worker_address,
            port=port,
            pod=config.identity,
        )

    def _web_page(self, api: CallerApi) -> "WebPage":
        from lockstep.controller.web.server import (
            WebPage,  # and with it the words of the CLI, which nothing else here needs
        )
        from lockstep.controller.web.sources import PageSources

        levels, gpu_types = self.config.topology_levels, self.config.gpu_types
        store, usual = self.store, self.tunables
        sources = PageSources(
            synced=lambda: store.synced,
            leading=self.election.is_leading,
            runs=lambda: store.runs.cache,
            run=store.runs.named,
            queues=lambda: store.queues.cache,
            nodes=store.all_nodes,
            pods_of=store.pods_of,
            foreign_requests=lambda: store.foreign_requests,
            reports=self.book.reports,
            run_sets=lambda: store.run_sets.cache,
            run_set=store.run_sets.named,
            events=self.events.recent.for_run,
            levels=usual.topology_levels if levels is None else levels,
            gpu_types=usual.gpu_types if gpu_types is None else gpu_types,
            accelerators=usual.accelerators,
        )
        return WebPage(sources, self.kube.post, api, self.clock)
