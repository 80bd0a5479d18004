"""The commands of the documentation do on a cluster what their pages say, or are run where the table below says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from containers.site import KindSite
from harness.kube import OPERATOR_NAMESPACE, create_namespace
from harness.shown_commands import Shown, block_on, shown
from harness.training import NAMESPACE, TrainingRun
from localcluster.build import REPOSITORY, binary
from lockstep.api.base import names

pytestmark = pytest.mark.containers
SECONDS = 240.0
HOURS = 100_000
"""Steps that nobody waits for."""

# Not run here, and what runs it instead.
ELSEWHERE = {
    r"make |export |PYTHONPATH=|\.venv/bin/": "for a checkout: continuous integration runs the targets themselves",
    r"docker (build|save|load|tag|push|inspect) |skopeo ": "there is no registry; `make image` makes the same",
    r"docker run ": "test_installing.py",
    r"uv ": "packages of a checkout; the image's build makes and installs the same wheel",
    r"curl -s http://OPERATOR:8080/": "the probes, and the metrics in tests/cluster/test_monitoring.py",
    r"lockstep-step ": "for programs inside a gang: tests/unit/worker/steps/test_steps_command.py",
    r"lockstep (sbatch |logs -f 4711|cancel 4711)": "of a script that is shown: tests/cluster/test_job_ids.py",
    r"python -m lockstep\.archive ": "the program of the jobs, by tests/archive with an object store",
    r"lockstep retry ": "of a run that has ended: tests/nodes/test_training_goes_on.py, tests/unit/cli/test_retry.py",
    r"lockstep submit .*--code-claim ": "of a directory that is shown: tests/nodes/test_code_on_a_claim.py",
    r"lockstep submit -q research ": "of a queue that has defaults: tests/unit/cli/test_queue_defaults.py",
    r"lockstep submit --name llama -N 16 ": "of a cluster that has its queue and class: tests/unit/cli/test_submit.py",
    r"kubectl (cp|exec) ": "into pods that the page speaks of; the token in tests/nodes/test_training_ray.py",
    r"lockstep ui$": "waits for a browser: test_page.py brings one",
    r"kubectl get trun -w$": "never ends",
    r"kubectl create namespace lockstep-system$": "it is there",
    r"kubectl delete namespace lockstep-system$": "the runs would lose their operator; test_operator.py removes that",
    r"kubectl apply --server-side -k \.$": "test_installing.py",
    r"helm upgrade .*serviceMonitor": "there are no ServiceMonitors here; tests/chart renders them",
}
PAGES_ELSEWHERE = {"first-hour": "written for the playground: tests/nodes/test_playground.py types it there"}
# Judged whole, and not done: tests of their own do it for real.
ONLY_TRIED = {
    r"kubectl .*\b(annotate|delete|create secret) ": "--dry-run=server",
    r"helm upgrade ": "--dry-run=server",
    r"helm (rollback|uninstall) ": "--dry-run",
}
STORAGE = "storage"
PLACEHOLDERS = {
    "/mnt/nvme/lockstep": STORAGE,
    "REGISTRY": "registry.example",
    "sha256:…": f"sha256:{'0' * 64}",
    "ACCOUNT": "default",
    "NAMESPACE": NAMESPACE,
    "NAME": "documented",
    "RUN": "documented",
    "--rank 3": "--rank 0",
}
RUN_FILE = """
apiVersion: lockstep.dev/v1alpha1
kind: TrainingRun
metadata: {name: llama}
spec: {nodes: 1, suspend: true, image: none, command: [train]}
"""
CLAIM_FILE = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""


@dataclass(frozen=True)
class Reader:
    """Somebody in a checkout, with the tools of the pages, whose context names a namespace."""

    folder: Path
    kubeconfig: Path

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """What a shell makes of it, ended where it does not end by itself."""
        tools = [binary(tool).parent for tool in ("kubectl", "helm")] + [Path(sys.executable).parent]
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": ":".join([*map(str, tools), os.environ["PATH"]]),
            **{f"HELM_{kind}_HOME": str(self.folder / "helm") for kind in ("CACHE", "CONFIG", "DATA")},
        }
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def clear(self) -> None:
        """Remove what the commands of a page have made."""
        self.run(f"kubectl delete {names.RUN_SETS} --all --wait=true")
        self.run(f"kubectl delete {names.RUNS} --wait=true --selector '!documented'")


@pytest.fixture(scope="module")
def documented(training_site: KindSite) -> Iterator[TrainingRun]:
    """A run that trains, as those that the pages speak of."""
    training_site.put_in_order()
    create_namespace(training_site.world.kubectl, NAMESPACE)
    run = training_site.train("documented", 1, HOURS, "--save-every=20", "--listen")
    training_site.world.kubectl("label", names.RUNS, run.name, "-n", NAMESPACE, "documented=yes")
    run.wait_until_saved(1, 20, SECONDS)
    yield run
    training_site.put_in_order()


@pytest.fixture(scope="module")
def reader(documented: TrainingRun, training_site: KindSite, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("reader")
    for name in ("charts", "crds", "manifests"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "run.yaml").write_text(RUN_FILE)
    (folder / "corrected.yaml").write_text(RUN_FILE.replace("llama", "corrected"))
    (folder / "claim.yaml").write_text(CLAIM_FILE)
    (folder / "site.yaml").write_text(filled_in(block_on(REPOSITORY / "docs" / "air-gapped.md", "yaml", "digest:")))
    (folder / "history.jsonl").touch()
    (folder / STORAGE).mkdir()
    kubectl = training_site.world.kubectl
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(kubectl("config", "view", "--raw", "--flatten"))
    kubeconfig.chmod(0o600)
    reader = Reader(folder, kubeconfig)
    assert reader.run(f"kubectl config set-context --current --namespace {NAMESPACE}").returncode == 0
    assert reader.run("kubectl apply -f claim.yaml").returncode == 0
    upgraded = reader.run(f"helm upgrade lockstep charts/lockstep -n {OPERATOR_NAMESPACE} --reset-then-reuse-values")
    assert upgraded.returncode == 0, upgraded.stderr  # and there is something to roll back
    return reader


def filled_in(text: str) -> str:
    """With what its reader puts in the place of words in capitals, and of a directory that only nodes have."""
    for word, meaning in PLACEHOLDERS.items():
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", meaning, text)
    return text


def as_run(line: str) -> str:
    """As it is run here: some are only tried."""
    line = filled_in(line).partition(" | grep ")[0]  # that nothing is found is no error
    command = line.partition(" # ")[0]
    if command.startswith("helm install "):  # that is how this cluster came to be
        return command.replace("install", "template", 1)
    tried = next((option for pattern, option in ONLY_TRIED.items() if re.match(pattern, command)), "")
    return f"{command} {tried}".strip()


def is_run(command: Shown) -> bool:
    return command.page not in PAGES_ELSEWHERE and not any(re.match(pattern, command.line) for pattern in ELSEWHERE)


RUN_HERE = {page: list(lines) for page, lines in groupby(filter(is_run, shown()), key=lambda each: each.page)}


@pytest.mark.parametrize("page", RUN_HERE)
def test_what_a_page_shows_is_taken_or_refused_as_it_says(reader: Reader, page: str) -> None:
    try:
        for command in RUN_HERE[page]:
            answer = reader.run(as_run(command.line))
            told = f"{as_run(command.line)}\n{answer.stdout}\n{answer.stderr}"
            assert (answer.returncode != 0) == bool(command.refusal), told
            assert command.refusal in answer.stderr, told
    finally:
        reader.clear()


def test_every_command_that_is_left_out_is_still_shown() -> None:
    lines = [each.line for each in shown()]
    for pattern in ELSEWHERE:
        assert any(re.match(pattern, line) for line in lines), f"{pattern} is shown nowhere: remove it"
