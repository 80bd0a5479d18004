"""The batch scripts of tests/nodes/test_training_slurm.py by a real slurmctld and here: how they end, what they print
and what they write is the same, but for what is listed with its reason."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.kube import OPERATOR_NAMESPACE
from harness.machines import MachinesError
from harness.training import TrainingSite
from harness.waiting import wait_for
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.slurm.hostlist import expand
from support.batch_scripts import ALL, DIFFERENCES, BatchScript
from support.batch_site import RUNS, BatchSite
from support.real_slurm import FIRST_JOB, MISSING, NODES, RealSlurm, is_there, real_slurm

pytestmark = [pytest.mark.nodes, pytest.mark.nightly, pytest.mark.skipif(not is_there(), reason=MISSING)]
DATE = re.compile(r"\b(?:[0-9]{4}-[0-9-]{5}T[0-9:]{8}|(?:[A-Z][a-z]{2} ){2}[ 0-9]{2} [0-9:]{8} [A-Z]+ [0-9]{4})\b")
SECONDS = 300.0
COUNTER = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps"


class Outcome(NamedTuple):
    """``lines``: of the files that were written, with JOB for the job's number and NODE0 and so on for its nodes."""

    code: int
    lines: Counter[str]  # FILE: LINE


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    try:  # not below /tmp, which each machine has for itself
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, real_slurm(Path(folder)) as started:
            yield started
    except MachinesError as error:
        pytest.skip(f"no real Slurm can run here: {error}")


@pytest.fixture(scope="module")
def numbered(training_site: TrainingSite) -> None:
    """Jobs have numbers that no script prints by chance."""
    api = training_site.world.cluster.api
    data = {"data": {"next": str(FIRST_JOB)}}
    if names.JOB_IDS_CONFIG_MAP in [item["metadata"]["name"] for item in api.get(COUNTER)["items"]]:
        api.send(Request("PATCH", f"{COUNTER}/{names.JOB_IDS_CONFIG_MAP}", data, MERGE_PATCH))
        training_site.kill_operator()  # with the numbers that it has taken
    else:
        metadata = {"name": names.JOB_IDS_CONFIG_MAP, "namespace": OPERATOR_NAMESPACE}
        api.send(Request("POST", COUNTER, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}))


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("script", ALL, ids=lambda script: str(script.name))
def test_a_script_does_the_same_here(
    script: BatchScript,
    slurm: RealSlurm,
    site: TrainingSite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = by_slurm(slurm, script)
    login = BatchSite(site, monkeypatch, capsys, f"compared-{script.name}")
    ours = by_lockstep(login, script)
    listed = [row for row in DIFFERENCES if script in row.scripts]
    seen = set()
    unexplained = []
    for who, more, less in (("Slurm", theirs.lines, ours.lines), ("here", ours.lines, theirs.lines)):
        for line in sorted((more - less).elements()):
            rows = [row for row in listed if re.fullmatch(row.theirs if who == "Slurm" else row.ours, line)]
            seen.update(rows)
            unexplained += [] if rows else [f"{who}: {line}"]
    assert unexplained == [], "\n" + "\n".join(unexplained)
    assert [row for row in listed if row not in seen and not row.sometimes] == [], "it is the same by now"
    assert theirs.code == ours.code


def outcome(script: BatchScript, folder: Path, code: int, words: Mapping[str, Sequence[str]]) -> Outcome:
    """``words``: what stands for whichever texts."""

    def alike(text: str) -> str:
        for word, texts in words.items():
            any_text = "|".join(map(re.escape, texts))
            text = re.sub(rf"(?<![0-9A-Za-z])(?<![0-9]\.)(?:{any_text})(?![0-9A-Za-z])", word, text)
        return DATE.sub("DATE", text)

    given = {folder / name for name in (script.name, *script.files)}
    lines: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and path not in given and "__pycache__" not in path.parts:
            name = alike(str(path.relative_to(folder)))
            for line in ["(is there)", *map(alike, path.read_text().splitlines())]:
                lines.update(f"{name}: {each}" for each in of_each_task(line))
    return Outcome(code, lines)


def of_each_task(line: str) -> list[str]:
    """How many of them srun puts into one line is a matter of moments."""
    several = re.fullmatch(r"(srun: error: \S+: task)s ([0-9,-]+)(: .*)", line)
    return [f"{several[1]} {task}{several[3]}" for task in expand(f"[{several[2]}]")] if several else [line]


def by_slurm(slurm: RealSlurm, script: BatchScript) -> Outcome:
    folder = slurm.folder / script.name
    folder.mkdir()
    replace(script, text=re.sub(script.plugins, "", script.text) if script.plugins else script.text).write_into(folder)
    ran = slurm.shell(f"cd {folder} && sbatch -W --parsable {' '.join([script.name, *script.arguments])}")
    number = ran.stdout.strip()
    assert number.isdigit(), ran.stderr
    what = f"what {script.name} submitted has ended there"
    wait_for(what, lambda: not slurm.shell("squeue -h").stdout.strip() or None, seconds=SECONDS, every=0.1)
    own = {"slurmstepd": [f"slurmstepd-{name}" for name in NODES]}  # as there are several on one machine
    nodes = {f"NODE{index}": [name, f"node-{index}", f"10.77.0.{index + 1}"] for index, name in enumerate(NODES)}
    numbers = {"JOB": [number], "NEXT": [str(int(number) + 1)]}
    return outcome(script, folder, ran.returncode, {**numbers, **own, **nodes})


def all_ended(runs: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The runs, once each of them has finished."""
    conditions = [run.get("status", {}).get("conditions", ()) for run in runs]
    finished = [any(c["type"] == "Finished" and c["status"] == "True" for c in each) for each in conditions]
    return runs if all(finished) else None


def by_lockstep(login: BatchSite, script: BatchScript) -> Outcome:
    code, number = login.ended(script, "--wait")
    api, slots = login.site.world.cluster.api, []
    what = f"all runs of {script.name} have ended here"
    for run in wait_for(what, lambda: all_ended(api.get(RUNS)["items"]), seconds=SECONDS, every=0.1):
        if run["status"]["jobId"] == number:
            slots = run["status"]["assignment"]["nodes"]
        login.job(run["status"]["jobId"])  # it goes with the others of this test
    nodes = {}
    for rank, name in enumerate(slots):
        found = api.get(f"/api/v1/nodes/{name}")["status"]["addresses"]
        nodes[f"NODE{rank}"] = [name, *(each["address"] for each in found)]
    login.close()
    return outcome(script, login.folder, code, {"JOB": [str(number)], "NEXT": [str(number + 1)], **nodes})
