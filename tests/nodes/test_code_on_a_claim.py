"""Code that is too much for a ConfigMap, as it is typed: copied to a claim once, and run from there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from harness.training import CLAIM, NAMESPACE, TrainingSite
from harness.waiting import wait_for
from lockstep.api.base import names
from lockstep.cli.main import main
from lockstep.cli.submission.claim_copies import LABEL

pytestmark = pytest.mark.nodes

SLOW = 150.0
PROGRAM = """
import os, pathlib
assert len(pathlib.Path("tokens.bin").read_bytes()) == 2_500_000
from pkg.net import WORD
print("trained", WORD, os.getcwd(), flush=True)
try:
    open("left.txt", "w")
except OSError as error:
    print("read-only", flush=True)
"""


def test_code_beyond_a_config_map_is_copied_to_a_claim_once_and_the_gang_runs_there(
    site: TrainingSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api, kubeconfig = site.world.cluster.api, str(site.world.cluster.kubeconfig)

    def types(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([words[0], "-n", NAMESPACE, "--kubeconfig", kubeconfig, *words[1:]])
        said = capsys.readouterr()
        assert not end.value.code, said
        return said.out + said.err

    program = tmp_path / "program"
    (program / "pkg").mkdir(parents=True)
    (program / "train.py").write_text(PROGRAM)
    (program / "pkg" / "net.py").write_text("WORD = 'once'\n")
    (program / "tokens.bin").write_bytes(os.urandom(2_500_000))
    manifest = tmp_path / "run.yaml"
    spec = {
        "nodes": 2,
        "gpusPerNode": 0,
        "image": "none",
        "command": ["python3", "-B", "train.py"],
        "podTemplate": site.pod_template,
    }
    head = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": "carried"}}
    manifest.write_text(yaml.safe_dump(head | {"spec": spec}))
    flags = ("submit", str(manifest), "--code", str(program), "--code-claim", CLAIM)
    copies = site.world.claim_folder(NAMESPACE, CLAIM) / "lockstep-code"

    said = types(*flags)
    assert f"on claim {CLAIM}, which is /code, where it starts" in said
    run = site.applied("carried", api.get(_path("carried"))["metadata"]["uid"], 2, CLAIM)
    site.runs.append(run)
    run.wait_until_succeeded(SLOW)
    logs = types("logs", "carried")
    assert logs.count("trained once /code") == 2
    assert logs.count("read-only") == 2
    [copy] = copies.iterdir()
    assert sorted(path.name for path in copy.iterdir()) == ["pkg", "tokens.bin", "train.py"]

    made = copy.stat().st_ino
    types("retry", "carried", "--code", str(program), "--code-claim", CLAIM, "--no-wait")
    assert [(path.name, path.stat().st_ino) for path in copies.iterdir()] == [(copy.name, made)], "it is used again"

    def left() -> list[str]:
        parts = [f"/api/v1/namespaces/{NAMESPACE}/{kind}?labelSelector={LABEL}" for kind in ("pods", "configmaps")]
        return [raw["metadata"]["name"] for part in parts for raw in api.get(part)["items"]]

    wait_for("nothing of the way is left", lambda: not left(), seconds=SLOW, last_seen=left)


def _path(name: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}/{name}"
