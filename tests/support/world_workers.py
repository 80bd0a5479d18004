"""The workers of the cluster in memory, and the programs that they run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.core.checkpoints.one_directory import is_in_one_directory
from lockstep.core.model import assignment as slots
from lockstep.core.model.bounds import Tier
from lockstep.core.model.plan import DesiredPhase
from lockstep.core.model.snapshot import PodPhase, PodView, RunView
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ExitReport,
    PointReport,
    ProgressReport,
    Sign,
    StepEnd,
    Verdict,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
    WorkerReport,
)
from support.world_state import Worker, WorldState


@dataclass
class WorldOfWorkers(WorldState):
    """Workers hear their orders, act, and report; programs train, save and end."""

    def work(self) -> None:
        """Every worker hears its orders, acts, and reports, unless its node is silent."""
        heard = 0
        for pod in list(self.pods.values()):
            worker = self.workers.get(pod.uid)
            if worker is None or pod.is_terminal or pod.node in self.silent_nodes:
                continue
            before = (worker.phase, worker.attempt, worker.ready_for)
            heard += 1
            if self.delays is not None and not worker.ready_for and self.now < worker.since + self.delays(pod.slot)[3]:
                self._report(pod, worker)
                continue
            if self.directives_reach is None or heard <= self.directives_reach:
                self._obey(pod, worker)
            if before != (worker.phase, worker.attempt, worker.ready_for):
                worker.since = self.now
            self._report(pod, worker)
        self._commit_saves()

    def work_reports_only(self) -> None:
        """Every worker reports, and has not yet heard new orders."""
        self.directives_reach = 0
        self.work()
        self.directives_reach = None

    def tell_of_save(self, run: str, step: int) -> None:
        """All workers see a checkpoint and say so."""
        uid = self.runs[run].uid
        steps = [*self.saved.get(uid, []), step]
        for worker in self._workers_of(uid):
            worker.inventory = self._rows(uid, steps, slots.world(self.runs[run].status.assignment), worker.node)
        self.work_reports_only()

    def tell_to_end(self, run: str, rank: int, grace: float = 60.0) -> None:
        """The pod of a rank gets SIGTERM from somebody else, as with an eviction."""
        worker = self.worker(run, rank)
        if worker is not None:
            worker.leaving_by = self.now + grace

    def _may_write(self, worker: Worker) -> bool:
        """A process that nobody can reach, before its own fence falls."""
        since = self.cut_off.get(worker.node)
        if since is None or worker.phase is not WorkerPhase.RUNNING:
            return False
        return self.now < max(since, worker.steps_since) + self.tunables.fence_seconds

    def exit_child(
        self, run: str, rank: int, code: int, *, signs: Sequence[str] = (), stderr: str = "", late: float = 0.0
    ) -> None:
        """The training process of a rank ends, ``late`` seconds after now, having shown ``signs`` before."""
        worker = self.worker(run, rank)
        if worker is not None and worker.phase is WorkerPhase.RUNNING:
            worker.phase = WorkerPhase.EXITED
            worker.since = self.now
            reason = "Error" if code else "Completed"
            worker.exit = ExitReport(code=code, at=self.now + late, reason=reason, stderr_tail=stderr)
            self.show(run, rank, *signs)

    def end_step(
        self,
        run: str,
        rank: int,
        *,
        code: int | None = None,
        signal: int | None = None,
        ago: float = 0.0,
        asked: bool = False,
        stderr: str = "",
        program: str = "python",
        step: str = "",
        task: int | None = None,
        node_rank: int | None = None,
        reason: str = "",
    ) -> None:
        """A process of a step on the node of a rank has ended so many seconds before now."""
        worker = self.worker(run, rank)
        if worker is not None:
            number = str(len(worker.step_ends) + 1)
            number, task = step or number, rank if task is None else task
            end = StepEnd(self.now - ago, number, task, program, code, signal, stderr, asked, node_rank, reason)
            worker.step_ends += (end,)

    def show(self, run: str, rank: int, *signs: str, step: int = 0) -> None:
        """A rank's log shows something."""
        worker = self.worker(run, rank)
        if worker is not None:
            worker.signs += tuple(Sign(kind, self.now, step, f"a line about {kind}") for kind in signs)

    def train(self, run: str, steps: int) -> None:
        """Every running rank advances and the gang saves on the shared tier."""
        uid = self.runs[run].uid
        children = [w for w in self._workers_of(uid) if w.phase is WorkerPhase.RUNNING]
        newest = max((w.attempt for w in children), default=0)
        running = [w for w in children if w.attempt == newest and w.node not in self.cut_off]
        if len(running) == slots.world(self.runs[run].status.assignment) and running:
            for worker in running:
                worker.step += steps
                worker.steps_since = self.now
            step = max(worker.step for worker in running)
            self._keep_save(self.runs[run], step, running)

    def _keep_save(self, run: RunView, step: int, gang: Sequence[Worker]) -> None:
        self.saved.setdefault(run.uid, []).append(step)
        self.saved_by[run.uid, step] = gang[0].attempt
        self.saved_with[run.uid, step] = len(gang)
        checkpoint = run.spec.checkpoint if run.spec is not None else None
        if checkpoint is not None and checkpoint.local is not None:
            ranks = slots.slot_ranks(run.status.assignment)
            for worker in gang:
                self.on_disks.setdefault((run.uid, worker.node), {})[step] = ranks[worker.slot]

    def _rows(self, uid: str, steps: list[int], world: int, node: str) -> tuple[CheckpointReport, ...]:
        def row(tier: Tier, step: int, path: str) -> CheckpointReport:
            return CheckpointReport(
                tier=tier,
                step=step,
                path=path,
                verdict=Verdict.VALID,
                attempt=self.saved_by.get((uid, step), 1),
                world=self.saved_with.get((uid, step), world),
                run_uid=uid,
                committed_at=self.saved_at.get((uid, step), 1.0),
                format=self.format,
            )

        own = tuple(row("shared", step, f"/shared/{step}") for step in sorted(set(steps)))
        disk = sorted(self.on_disks.get((uid, node), {}).items())
        own += tuple(row("local", step, f"/local/{step}/rank-{rank}") for step, rank in disk)
        run = next((each for each in self.runs.values() if each.uid == uid), None)
        sees_others = run is not None and (run.status.resolved.start_root or is_in_one_directory(run))
        return own + self.foreign if sees_others else own

    def _obey(self, pod: PodView, worker: Worker) -> None:
        orders = self.directives.get(pod.run_uid)
        if orders is None or worker.slot >= len(orders.incarnations):
            return
        if orders.incarnations[worker.slot] != worker.incarnation:
            if orders.incarnations[worker.slot] > worker.incarnation and worker.phase is WorkerPhase.RUNNING:
                worker.phase, worker.exit = WorkerPhase.EXITED, ExitReport(143, at=self.now, reason="StoppedOnRequest")
            return
        phase, rank = orders.phase, orders.slot_ranks[worker.slot]
        if phase is DesiredPhase.RUN and (rank < 0 or worker.slot in orders.joining):
            phase = DesiredPhase.PREPARE  # as the operator answers spares
        if phase is DesiredPhase.RUN and worker.attempt == orders.attempt and worker.start is not None:
            worker.start = orders.start  # others may have joined it
        if phase is DesiredPhase.PREPARE and worker.ready_for < orders.attempt:
            worker.phase, worker.ready_for = (
                WorkerPhase.READY,
                orders.attempt,
            )  # its exit is told of until it runs again
            worker.verified, worker.step = (), 0
            worker.pointed = worker.warmed = None
            worker.clock_skew = self.clock_skews.get(worker.node, 0.0)
            world = sum(rank >= 0 for rank in orders.slot_ranks)
            worker.inventory = self._rows(pod.run_uid, self.saved.get(pod.run_uid, []), world, worker.node)
        elif phase is DesiredPhase.PREPARE and rank >= 0:
            if orders.verify is not None:
                tier: Tier = "local" if orders.verify.tier == "local" else "shared"
                worker.verified = (VerifyReport(tier, orders.verify.path, Verdict.VALID),)
            if worker.slot in orders.look_again:
                worker.looked_again, world = orders.attempt, sum(rank >= 0 for rank in orders.slot_ranks)
                worker.inventory = self._rows(pod.run_uid, self.saved.get(pod.run_uid, []), world, worker.node)
            point = orders.point
            asked = point is not None and point.slot == worker.slot and worker.pointed is None
            if point is not None and asked and worker.node not in self.hung_at_pointers:
                worker.pointed = PointReport(point.path, point.step, self.pointer_problems.get(worker.node, ""))
                self.pointed_at.append((worker.slot, point.path, point.step))
            if orders.warm_up is not None and worker.node not in self.hung_at_warm_up:
                deaf_to = self.deaf_to.get(worker.node)
                nodes = {w.node: orders.slot_ranks[w.slot] for w in self._workers_of(pod.run_uid)}
                bad = nodes.get(deaf_to, -1) if deaf_to is not None else -1
                problem = f"rank {bad} does not answer" if bad >= 0 else ""
                worker.warmed = WarmUpReport(orders.warm_up.id, 0.1, bad, problem)
        elif phase is DesiredPhase.RUN and worker.ready_for == orders.attempt > worker.attempt:
            assert orders.start is not None
            worker.phase, worker.attempt, worker.start = WorkerPhase.RUNNING, orders.attempt, orders.start
            worker.exit, worker.signs, worker.step_ends, worker.partly_ended = None, (), (), ()
            worker.step, worker.steps_since = orders.start.resume_step, self.now
            self.launched.setdefault((pod.run_uid, orders.attempt), set()).add(worker.slot)
            others = [w for w in self._workers_of(pod.run_uid) if w.attempt < orders.attempt and self._may_write(w)]
            self.overlaps += [(pod.run_uid, orders.attempt, w.node) for w in others]
            first = self.starts.setdefault((pod.run_uid, orders.attempt), orders.start)
            assert first == orders.start or orders.start.joins, "two START records for one attempt"
        elif phase is DesiredPhase.RUN and worker.phase is WorkerPhase.RUNNING and orders.save is not None:
            save_step = self.save_steps.setdefault((pod.run_uid, orders.save.id), orders.save.at_step)
            assert save_step == orders.save.at_step, "one id for two saves"
            if self.listens and worker.saved != orders.save.id:
                worker.saved = orders.save.id
                worker.step, worker.steps_since = max(worker.step + 1, orders.save.at_step), self.now
        elif orders.phase is DesiredPhase.STOP and worker.phase is not WorkerPhase.EXITED:
            worker.phase = WorkerPhase.EXITED
            worker.exit = ExitReport(code=143, at=self.now, reason="StoppedOnRequest")
        elif orders.phase is DesiredPhase.COMPLETE:
            code = worker.exit.code if worker.exit is not None else 0
            ended = PodPhase.FAILED if code else PodPhase.SUCCEEDED
            self.pods[pod.name] = replace(pod, phase=ended, exit_code=code)
            del self.workers[pod.uid]

    def _commit_saves(self) -> None:
        """A save that every rank of a gang has taken up is complete."""
        for run in self.runs.values():
            gang = [w for w in self._workers_of(run.uid) if w.phase is WorkerPhase.RUNNING]
            orders = self.directives.get(run.uid)
            world = sum(rank >= 0 for rank in orders.slot_ranks) if orders is not None else 0
            if orders is None or orders.save is None or len(gang) < world or not self.saves_succeed:
                continue
            if all(w.saved == orders.save.id for w in gang):
                steps = self.saved.setdefault(run.uid, [])
                step = max(w.step for w in gang)
                self._keep_save(run, step, gang)
                for pod in self.pods.values():
                    if pod.run_uid == run.uid and pod.uid in self.workers and pod.node not in self.silent_nodes:
                        worker = self.workers[pod.uid]
                        worker.inventory = self._rows(run.uid, steps, len(gang), worker.node)
                        self._report(pod, worker)

    def _report(self, pod: PodView, worker: Worker) -> None:
        if pod.uid not in self.workers:
            return
        run = self.runs.get(pod.run)
        held = run.status.assignment.incarnations if run is not None else ()
        if worker.slot < len(held) and worker.incarnation < held[worker.slot]:
            if worker.phase is WorkerPhase.EXITED:  # the operator takes nothing else of it
                self.ended.setdefault(pod.run_uid, {})[pod.uid] = worker.attempt
            return
        progress = None
        if worker.attempt and worker.step:
            silent = self.tells_losses is not None and worker.slot not in self.tells_losses
            progress = ProgressReport(worker.step, worker.steps_since, "" if silent else "1.0")
        known = self.reports.setdefault(pod.run_uid, {}).get(worker.slot)
        self.reports[pod.run_uid][worker.slot] = WorkerReport(
            slot=worker.slot,
            incarnation=worker.incarnation,
            pod_uid=pod.uid,
            node=pod.node,
            phase=worker.phase,
            received_at=self.now,
            since=worker.since,
            registered_at=known.registered_at if known is not None and known.pod_uid == pod.uid else self.now,
            polling=True,
            address=f"10.0.0.{worker.slot + 1}",
            port=40_000 + worker.slot,
            steps_port=0 if worker.node in self.without_steps_port else 50_000 + worker.slot,
            attempt=worker.attempt,
            ready_for=worker.ready_for,
            looked_again=worker.looked_again,
            start=worker.start,
            exit=worker.exit,
            progress=progress,
            inventory=worker.inventory,
            unrecognised=self.unrecognised if self.unrecognised is None or not worker.slot else (),
            previous_saves=() if worker.slot or worker.inventory else self.previous_saves,
            verified=worker.verified,
            signs=worker.signs,
            step_ends=worker.step_ends,
            partly_ended=worker.partly_ended,
            saved=worker.saved,
            listens=self.listens and worker.phase is WorkerPhase.RUNNING,
            leaving_by=worker.leaving_by,
            pointed=worker.pointed,
            warmed=worker.warmed,
            clock_skew=worker.clock_skew,
        )
