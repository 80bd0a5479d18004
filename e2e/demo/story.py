"""One run from apply to its end, with a failure in the middle, and what has to be true of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from demo.checkpoints import Saved
from demo.narration import told
from harness.kube import ROOT, Kubectl, create_namespace
from localcluster.processnodes import ProcessNodes
from lockstep.api.base import names
from lockstep.api.run_status import TrainingRunStatus
from lockstep.cli import runs
from lockstep.cli.actions import wait
from lockstep.cli.client import Cluster, connect, resource_path
from lockstep.cli.views import history
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

NAMESPACE = "lockstep-demo"
NAME = "tom-sawyer"
CLAIM = "checkpoints"
VICTIM_RANK = 2
STEPS_PAST_CHECKPOINT = range(5, 13)
"""When the failure comes: so long after a save that it costs visible work, and well before the next, which could
still be committed."""
LAST_SAVE_SECONDS = 10.0
FINISH_SECONDS = 600.0


class Story:
    """Applies the demo's run and follows it. ``say`` gets the lines."""

    def __init__(
        self, kubectl: Kubectl, say: Callable[[str], None], *, claims: Path | None, nodes: ProcessNodes | None
    ) -> None:
        self._kubectl = kubectl
        self._say = say
        self._claims = claims  # folder of the claims, where this machine can see it
        self._nodes = nodes  # whose power this machine can cut
        self._cluster: Cluster = connect(NAMESPACE, None, str(kubectl.kubeconfig))
        self._racks: Mapping[str, str] = {}
        self._before = TrainingRunStatus()
        self._torn_step = 0
        self.victim = ""  # the node that was broken, once one was

    def play(self, image: str | None = None) -> list[str]:
        """Run it to the end; what was not as promised (nothing, if all was well). Raises CliError."""
        self._racks = {
            node["metadata"]["name"]: node["metadata"]["labels"].get("topology.kubernetes.io/rack", "no rack")
            for node in self._kubectl.json("get", "nodes")["items"]
        }
        self._apply(image)
        raw = runs.fetch(self._cluster, NAME)
        run = wait.until(self._cluster, raw, "finished", FINISH_SECONDS, self._see)
        self._await_the_last_save(run.status.progress.step)
        self._show_end(run)
        return self._broken_promises(run)

    def _apply(self, image: str | None) -> None:
        create_namespace(self._kubectl, NAMESPACE)
        demo = Path(__file__).parent
        files = [f"--from-file={demo / name}" for name in ("train_lm.py", "corpus.txt")]
        self._kubectl("delete", "configmap,trun", "trainer", NAME, "-n", NAMESPACE, "--ignore-not-found")
        self._kubectl("create", "configmap", "trainer", "-n", NAMESPACE, *files)
        manifest = (ROOT / "manifests" / "demo.yaml").read_text()
        if image is not None:
            manifest = manifest.replace("image: jax ", f"image: {image} ")
        self._say("kubectl apply -f manifests/demo.yaml")
        self._kubectl("apply", "-n", NAMESPACE, "-f", "-", text=manifest)

    def _see(self, run: RunView) -> None:
        for line in told(self._before, run.status, self._racks):
            self._say(line)
        self._before = run.status
        if not self.victim and self._is_time_to_break(run):
            self._break(run)

    def _is_time_to_break(self, run: RunView) -> bool:
        status = run.status
        if status.attempt != 1 or status.start is None:
            return False
        files = self._saved(run)
        if files is None:
            # Status hears of a save some seconds later: there is no telling how far off the next one is.
            saved = max((candidate.step for candidate in status.checkpoint.latest), default=0)
            return saved > 0 and status.progress.step > saved
        saved = files.newest_valid(1)
        return saved > 0 and status.progress.step - saved in STEPS_PAST_CHECKPOINT

    def _break(self, run: RunView) -> None:
        status = run.status
        self.victim = status.assignment.nodes[VICTIM_RANK]
        saved = self._saved(run)
        if saved is not None:
            self._torn_step = status.progress.step
            torn = saved.tear(1, self._torn_step)
            what = f"{torn.name} lacks a shard and its manifest"
            self._say(f"### a save of step {self._torn_step} is cut short: {what}")
        if self._nodes is not None:
            self._nodes.kill_node(self.victim)
            self._say(f"### {self.victim} (rank {VICTIM_RANK}) loses power: every process on it is gone, unannounced")
        else:
            pod = names.pod_name(run.name, run.uid, VICTIM_RANK, status.assignment.incarnations[VICTIM_RANK])
            self._kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false", "--grace-period=1")
            self._say(f"### pod {pod} of rank {VICTIM_RANK} is deleted: the power of these nodes is not ours to cut")

    def _saved(self, run: RunView) -> Saved | None:
        if self._claims is None:
            return None
        folder = self._claims / NAMESPACE / CLAIM / run.status.resolved.shared_path / run.uid
        return Saved(folder, len(run.status.assignment.nodes))

    def _await_the_last_save(self, step: int) -> None:
        """Workers tell of what was saved last right after the exits, before they leave."""
        end = time.monotonic() + LAST_SAVE_SECONDS
        while time.monotonic() < end:
            saved = runs.view(runs.fetch(self._cluster, NAME)).status.checkpoint.latest
            if any(checkpoint.step == step for checkpoint in saved):
                return
            time.sleep(0.2)

    def _show_end(self, run: RunView) -> None:
        self._say("kubectl get trun -o wide")
        print(self._kubectl("get", "trun", "-n", NAMESPACE, "-o", "wide"))
        self._say(f"lockstep history {NAME} -o wide")
        print("\n".join(history.listing(run.status, True, time.time())), flush=True)
        print()

    def _broken_promises(self, run: RunView) -> list[str]:
        status, wrong = run.status, []
        if not is_true(status, ConditionType.SUCCEEDED):
            wrong.append(f"the run ended as {status.state} ({status.reason}), not Succeeded")
        if status.attempt != 2:
            wrong.append(f"it took {status.attempt} attempts, not 2")
        if self._nodes is not None and self.victim in status.assignment.nodes:
            wrong.append(f"{self.victim} is dead and yet part of the gang")
        resumed = status.checkpoint.resume.step if status.checkpoint.resume is not None else 0
        saved, total = self._saved(run), status.progress.total_steps or 0
        if wrong or saved is None:
            return wrong
        valid = saved.newest_valid(1)
        if resumed != valid:
            wrong.append(f"it resumed from step {resumed}, and the newest valid checkpoint was of step {valid}")
        rejected = {candidate.step: candidate.reason for candidate in status.checkpoint.rejected}
        if self._torn_step not in rejected:
            wrong.append(f"status does not say that the torn checkpoint of step {self._torn_step} was passed over")
        if not self._was_told(run.uid, f"step {self._torn_step} "):
            wrong.append("no event CheckpointRejected tells of the torn checkpoint")
        wrong += saved.broken_promises(resumed, total)
        if not wrong:
            again = saved.repeated_steps(resumed)
            self._say(f"every rank took the steps 1 to {total} in one line, none skipped")
            self._say(f"{again} steps were taken again from step {resumed}, and are bit for bit the same as before")
        return wrong

    def _was_told(self, uid: str, words: str) -> bool:
        events = self._cluster.list(resource_path("/apis/events.k8s.io/v1", NAMESPACE, "events"))["items"]
        return any(
            event.get("reason") == "CheckpointRejected"
            and event["regarding"].get("uid") == uid
            and words in event.get("note", "")
            for event in events
        )
