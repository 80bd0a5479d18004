"""`make playground` comes up, shows what it says, and leaves nothing; and its tutorial, typed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.waiting import wait_for
from localcluster.build import REPOSITORY, build_dir
from playground import guide
from support.typed_page import files_on, type_all, typed_on

pytestmark = pytest.mark.nodes

PAGE = REPOSITORY / "docs" / "first-hour.md"
UP_SECONDS, DOWN_SECONDS, SHELL_SECONDS = 900.0, 120.0, 180.0
TUTORIAL_SECONDS = 1_200.0
"""As its page says, from `make playground` on, where `make build` has been done."""


@dataclass(frozen=True)
class Playground:
    """One that was started as `make playground` does. ``log`` is what it printed."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until_up(self) -> None:
        def is_up() -> bool:
            assert self.process.poll() is None, self.said
            return "Ctrl-C ends it" in self.said

        wait_for("the playground is up", is_up, seconds=UP_SECONDS, last_seen=lambda: self.said)

    def shell(self, line: str) -> str:
        """What a line prints, in a shell that has sourced what is to be sourced."""
        command = ["bash", "-c", f". {guide.folder()}/env && {line}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SHELL_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self) -> list[int]:
        """Everything that has to do with it: each has its world's folder, or its own, in the command line."""
        worlds = str(build_dir() / "worlds" / f"{self.process.pid}-")
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and worlds.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def end(self, number: signal.Signals) -> None:
        """Send a signal, as a terminal does, and wait until the playground has ended."""
        self.process.send_signal(number)
        self.process.wait(DOWN_SECONDS)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Playground]:
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY / 'e2e'}"}
    log = folder / "playground.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "playground"], env=environment, stdout=output, stderr=output, cwd=REPOSITORY
        )
    found = Playground(process, log)
    try:
        yield found
    finally:
        if process.poll() is None:
            found.end(signal.SIGINT)


def test_the_playground_shows_every_state_and_its_page_and_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as playground:
        playground.wait_until_up()
        queue = playground.shell("lockstep queue -A --finished")
        for state in ("Running", "Pending", "Suspended", "Failed", "Succeeded"):
            assert state in queue
        reasons = set(re.findall(r"Pending +(\w+)", queue))
        assert {"Dependency", "Resources"} <= reasons
        assert len(reasons) >= 4
        assert re.search(r"lr(_\[|-\d)", queue)
        nodes = playground.shell("kubectl get nodes -L topology.kubernetes.io/rack --no-headers").splitlines()
        assert (len(nodes), len({line.split()[-1] for line in nodes})) == (132, 10)
        assert "cannot" not in playground.shell("lockstep explain mixtral -n language")

        link = re.search(r"(http://127\.0\.0\.1:\d+)/ui/#token=(\S+)", playground.said)
        assert link is not None
        request = urllib.request.Request(f"{link[1]}/ui/api/fleet", headers={"Authorization": f"Bearer {link[2]}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert len(json.loads(answer.read())["name"]) == 132

        second = subprocess.run(
            [sys.executable, "-m", "playground"], env=os.environ | {"PYTHONPATH": "operator:e2e"}, cwd=REPOSITORY,
            capture_output=True, text=True, check=False, timeout=SHELL_SECONDS,
        )  # fmt: skip
        assert second.returncode == 1
        assert "a playground is up already" in second.stderr

        assert playground.processes()
        playground.end(signal.SIGINT)
        assert playground.process.returncode == 0
        assert playground.processes() == []
        assert not guide.folder().exists()


@pytest.mark.nightly
def test_what_was_killed_is_cleared_away_by_the_next_which_may_be_ended_while_it_comes_up(tmp_path: Path) -> None:
    with started(tmp_path) as killed:
        killed.wait_until_up()
        killed.end(signal.SIGKILL)
    assert killed.processes()
    with started(tmp_path) as following:
        wait_for(
            "it is on its way", lambda: "Lockstep is installed" in following.said, seconds=UP_SECONDS,
            last_seen=lambda: following.said,
        )  # fmt: skip
        assert killed.processes() == []
        following.end(signal.SIGINT)
    assert following.process.returncode == 130
    assert following.processes() == []


@pytest.mark.nightly
def test_the_tutorial_does_what_it_says_when_it_is_typed_and_takes_no_longer(tmp_path: Path) -> None:
    home, checkout = tmp_path / "home", tmp_path / "checkout"
    for folder in (home / "first-hour", checkout):
        folder.mkdir(parents=True)
    for name, text in files_on(PAGE).items():
        (home / "first-hour" / name).write_text(text)
    first, *rest = typed_on(PAGE)
    assert first.command == "make playground"
    (checkout / ".build").symlink_to(build_dir())
    over = time.monotonic() + TUTORIAL_SECONDS
    with started(tmp_path) as playground:
        playground.wait_until_up()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["HOME"] = str(home)
        type_all(rest, checkout, environment, over - time.monotonic())
