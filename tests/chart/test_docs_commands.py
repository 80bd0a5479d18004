"""Commands of helm and kubectl in the sentences of the documentation are whole, as those programs themselves judge.

There is no API server to be found: whoever got as far as to ask it had no fault to find with the command. Those in
console blocks are run on a cluster, by e2e/containers/test_docs.py.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.shown_commands import Shown, is_a_name, mentioned
from localcluster.build import REPOSITORY, binary

NOWHERE = """
apiVersion: v1
kind: Config
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
current-context: nowhere
"""
OF_OTHERS = r"kubectl (lockstep|kueue) "
"""Plugins: ours is held to its own parser, in tests/unit/repository/test_docs_commands.py."""
COMMANDS = [
    each
    for each in mentioned()
    if not each.line.startswith("lockstep ") and not is_a_name(each) and not re.match(OF_OTHERS, each.line)
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages name, where something may be written beside it."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("charts", "crds", "manifests"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "kubeconfig").write_text(NOWHERE)
    return folder


def judged(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{binary('helm').parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "KUBECONFIG": str(folder / "kubeconfig"),
    }
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def is_whole(answer: subprocess.CompletedProcess[str]) -> bool:
    return answer.returncode == 0 or re.search(r"connection .*refused", answer.stderr) is not None


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_in_a_sentence_is_whole(command: Shown, checkout: Path) -> None:
    answer = judged(command.line, checkout)
    assert is_whole(answer), f"{command.line}\n{answer.stderr}"


@pytest.mark.parametrize(
    "line",
    [
        "helm upgrade --reset-then-reuse-values --set config.mode=Active",
        "helm upgrade lockstep charts/lockstep --reset-then-reuse",
        "kubectl annotate trun NAME --overwrit lockstep.dev/restart-request=1",
        "kubectl annotate trun NAME --overwrite",
        "kubectl get-pods -n lockstep-system",
    ],
)
def test_a_command_that_lacks_something_is_not_whole(line: str, checkout: Path) -> None:
    assert not is_whole(judged(line, checkout))


def test_commands_are_found_at_all() -> None:
    assert len(COMMANDS) > 20
