"""The web page of the operator that runs, as somebody with a token of the cluster sees it over a forwarded port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from containers.site import KindSite
from containers.test_operator import SECONDS, begun, fail_and_recover
from harness import browser
from harness.training import NAMESPACE, TrainingRun
from harness.waiting import wait_for
from localcluster import build

pytestmark = pytest.mark.containers
WHERE_IT_LEADS = Path(__file__).with_name("browser.py")


@dataclass(frozen=True)
class Visit:
    """A page that is open for somebody, and what there is to be seen on it."""

    address: str
    run: TrainingRun
    waits: TrainingRun

    def fetched(self, path: str) -> str:
        page, _, token = self.address.partition("#token=")
        request = urllib.request.Request(page + path, headers={"Authorization": f"Bearer {unquote(token)}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def visit(training_site: KindSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """`lockstep ui` as somebody, a run that trains in its second attempt, and one that wants its nodes."""
    site, folder = training_site, tmp_path_factory.mktemp("visit")
    site.put_in_order()
    run = begun(site, "shown")
    waits = site.train("waits", len(site.nodes), 20)
    fail_and_recover(site, run)
    waits.wait("is told what lacks", lambda: waits.status.get("queue", {}).get("message"), SECONDS)
    told, output = folder / "told", folder / "output"
    command: list[str | Path] = [
        Path(sys.executable).with_name("lockstep"),
        "ui",
        "--kubeconfig",
        somebodys(site, folder),
    ]
    environment = os.environ | {
        "PATH": f"{build.binary('kubectl').parent}:{os.environ['PATH']}",
        "BROWSER": f"{sys.executable} {WHERE_IT_LEADS} {told} %s",
    }
    with output.open("wb") as log:
        page = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for("a browser was there", told.exists, seconds=SECONDS, last_seen=output.read_text)
            yield Visit(told.read_text(), run, waits)
        finally:
            page.send_signal(signal.SIGINT)
            page.wait(120)
    site.put_in_order()


def somebodys(site: KindSite, folder: Path) -> Path:
    """The kubeconfig of an account that may edit what is in namespaces."""
    kubectl, account = site.world.kubectl, "somebody"
    made = (
        ["serviceaccount", account, "-n", NAMESPACE],
        ["clusterrolebinding", account, "--clusterrole=edit", f"--serviceaccount={NAMESPACE}:{account}"],
    )
    for what in made:
        kubectl("apply", "-f", "-", text=kubectl("create", *what, "--dry-run=client", "-o", "json"))
    token = kubectl("create", "token", account, "-n", NAMESPACE).strip()
    content = json.loads(kubectl("config", "view", "--minify", "--raw", "--flatten", "-o", "json"))
    content["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in content["users"]]
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
    return path


def test_the_page_opens_over_a_forwarded_port_signed_in_as_its_user(training_site: KindSite, visit: Visit) -> None:
    assert "<title>" in visit.fetched("")
    run: dict[str, Any] = json.loads(visit.fetched(f"api/runs/{NAMESPACE}/{visit.run.name}"))
    assert (run["name"], run["namespace"]) == (visit.run.name, NAMESPACE)
    fleet = json.loads(visit.fetched("api/fleet"))
    assert len(fleet["name"]) == len(training_site.nodes)  # their names are for those who may list nodes


@pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)
async def test_a_browser_shows_the_racks_the_queue_and_the_attempts_of_a_run_that_trains(
    training_site: KindSite, visit: Visit, tmp_path: Path
) -> None:
    run, ranks, nodes = visit.run, visit.run.nodes, training_site.nodes
    words = "document.querySelector('main').innerText"
    async with browser.opened(tmp_path / "browser") as tab:
        await tab.open(visit.address)
        await tab.shown("fleet")
        assert await tab.evaluate("location.hash") == "#/fleet"  # the token does not stay in the address
        assert await tab.evaluate("document.querySelector('#map').dataset.nodes") == str(len(nodes))
        node = "document.querySelector('#node').innerText"
        await tab.evaluate("document.querySelector('#map').focus()")
        seen = set()
        for _ in nodes:
            await tab.press("ArrowRight")
            seen.add(" ".join((await tab.until(node)).split()))
        for rank, name in enumerate(ranks):
            assert [each for each in seen if name in each and f"{NAMESPACE}/{run.name}, rank {rank}" in each], seen

        await tab.evaluate("location.hash = '#/queue'")
        await tab.shown("queue")
        shown = await tab.evaluate(words)
        assert f"{NAMESPACE}/{visit.waits.name}" in shown
        assert visit.waits.status["queue"]["message"] in shown
        assert f"{NAMESPACE}/{run.name}" in shown

        await tab.evaluate(f"location.hash = '#/runs/{NAMESPACE}/{run.name}'")
        await tab.shown("run")
        shown = await tab.evaluate(words)
        for word in ("Application", "RestartInPlace", ranks[1], "Where the time went"):
            assert word in shown, shown
        count = "document.querySelectorAll('{}').length"
        assert await tab.evaluate(count.format(".timeline .attempt")) == 2
        assert await tab.evaluate(count.format(".timeline .fail")) == 1  # lost work only where no save was just done
        # It trains on: the page follows by itself.
        step = "[...document.querySelectorAll('dt')].find(e => e.textContent === 'Step').nextSibling.innerText"
        before = await tab.evaluate(step)
        await tab.until(f"{step} !== {json.dumps(before)}")
        assert tab.problems == []
