"""The real worker against the operator's real worker API; only the API server's TokenReview is a fake."""

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.workers.api import WorkerApi
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.step_certificates import StepCertificates
from lockstep.controller.workers.tls import new_material, server_context
from lockstep.controller.workers.trust import TokenReviews
from lockstep.controller.workers.worker_archive import worker_archive
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.start_record import CollectiveStart, Members
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport

pytestmark = pytest.mark.process

RUN_UID = "7f1c2a34-1"
POD = PodView(
    namespace="team", name="llama-7f1c2-0-1", uid="pod-0-1", run="llama", run_uid=RUN_UID, owner_uid=RUN_UID, slot=0,
    incarnation=1, node="gpu-0", bound=True, phase=PodPhase.RUNNING, created_at=0.0,
)  # fmt: skip


class OnePod:
    """The operator's view: one run with one pod."""

    def pod_by_uid(self, uid: str) -> PodView | None:
        return POD if uid == POD.uid else None

    def run_namespace(self, run_uid: str) -> str | None:
        return "team" if run_uid == RUN_UID else None

    def incarnation(self, run_uid: str, slot: int) -> int | None:
        return 1


async def review(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = {
        "authentication.kubernetes.io/pod-name": [POD.name],
        "authentication.kubernetes.io/pod-uid": [POD.uid],
    }
    user = {"username": "system:serviceaccount:team:default", "extra": extra}
    return {"status": {"authenticated": True, "audiences": ["lockstep"], "user": user}}


def token() -> str:
    claims = {"aud": ["lockstep"], "exp": time.time() + 3600, "kubernetes.io": {"pod": {"uid": POD.uid}}}
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


async def test_barrier_release_restart_in_place_and_end_through_the_real_api(tmp_path: Path) -> None:
    clock, material = SystemClock(), new_material(["127.0.0.1"], time.time())
    book = ReportBook(clock, lambda run_uid: None)
    api = WorkerApi(
        reviews=TokenReviews(review, OnePod(), clock), gangs=OnePod(), book=book, clock=clock,
        epoch=lambda: (1_700_000_000, 3), heartbeat_seconds=lambda workers: 2.0,
        steps=StepCertificates(clock),
    )  # fmt: skip
    listener = await Listener.open(api.application(), "127.0.0.1", 0, server_context(material), api.connections)
    (tmp_path / "ca.crt").write_bytes(material.ca_cert)
    (tmp_path / "token").write_text(token())
    (tmp_path / "worker.pyz").write_bytes(worker_archive())
    (tmp_path / "shared").mkdir()
    environment = {
        "PATH": os.environ["PATH"], "LOCKSTEP_OPERATOR_URL": f"https://127.0.0.1:{listener.port}",
        "LOCKSTEP_NAMESPACE": "team", "LOCKSTEP_RUN": "llama", "LOCKSTEP_RUN_UID": RUN_UID, "LOCKSTEP_SLOT": "0",
        "LOCKSTEP_INCARNATION": "1", "LOCKSTEP_POD_UID": POD.uid, "LOCKSTEP_HOST_IP": "127.0.0.1",
        "LOCKSTEP_CHECKPOINT_CONFIG": json.dumps({"shared": str(tmp_path / "shared")}),
        "LOCKSTEP_SCRATCH": str(tmp_path), "LOCKSTEP_TOKEN_FILE": str(tmp_path / "token"),
        "LOCKSTEP_CA_FILE": str(tmp_path / "ca.crt"),
    }  # fmt: skip
    command = [
        "sh",
        "-c",
        """[ $LOCKSTEP_ATTEMPT = 1 ] && echo x > $LOCKSTEP_CHECKPOINT_DIR/ckpt_30.pt && exec sleep 100
        echo '{"step": 3}' >> $LOCKSTEP_PROGRESS_FILE""",
    ]
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", str(tmp_path / "worker.pyz"), "--", *command, env=environment
    )

    async def heard(what: Callable[[WorkerReport], bool]) -> WorkerReport:
        async with asyncio.timeout(20):
            while not ((report := book.reports(RUN_UID).get(0)) and what(report)):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
        return report

    def desire(phase: DesiredPhase, attempt: int) -> None:
        start = CollectiveStart(attempt, "hash", "127.0.0.1", 40123, members=(Members("0", 1),))
        nodelist = ("127.0.0.1",) if phase is DesiredPhase.RUN else ()
        book.set_directive(
            RUN_UID,
            Directive(attempt, phase, (1,), (0,), start=start if nodelist else None, nodelist=nodelist),
        )

    try:
        for attempt in (1, 2):
            asked = time.monotonic()
            desire(DesiredPhase.PREPARE, attempt)
            report = await heard(lambda r, n=attempt: r.ready_for == n and r.polling)  # type: ignore[misc]
            assert report.port
            assert report.unrecognised is not None
            left = [row.path.rpartition("/shared/")[2] for row in report.unrecognised]
            assert left == ([f"{RUN_UID}/a1/ckpt_30.pt"] if attempt == 2 else []), "no format knows it, and it is told"
            desire(DesiredPhase.RUN, attempt)
            await heard(lambda r, n=attempt: r.attempt == n and r.phase is not WorkerPhase.READY)  # type: ignore[misc]
            assert time.monotonic() - asked < 14  # a poll is held for 15
            if attempt == 1:
                await heard(lambda r: bool(r.unrecognised))  # at the first save, while it trains
        report = await heard(lambda r: r.phase is WorkerPhase.EXITED)
        assert report.exit is not None
        assert report.exit.succeeded
        assert report.progress is not None
        assert report.progress.step == 3
        assert report.start == CollectiveStart(2, "hash", "127.0.0.1", 40123, members=(Members("0", 1),))
        desire(DesiredPhase.COMPLETE, 2)
        assert await asyncio.wait_for(worker.wait(), 20) == 0
        assert {code for _, code in api.answered} <= {200, 409}
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
        await listener.close()
