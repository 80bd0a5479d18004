"""What a fresh machine is made of and asked to do, and where none can be made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fresh import __main__ as main
from fresh import handed_in, machine, readme
from harness.proc import children
from harness.waiting import wait_for
from kindcluster.errors import KindClusterError
from localcluster.build import REPOSITORY
from localcluster.processes import is_alive, record_of
from localcluster.processnodes.daemon import Settings

EVERYTHING = {"debootstrap", "apt-get", "git", "mount", "pivot_root", "setpriv", "unshare"}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "README.md"
    page.write_text(
        textwrap.dedent("""\
            ```console
            $ make demo   # trains
            $ helm install lockstep
            ```
            It needs git and Python. On Debian that is `apt-get
            install git python3-venv`.
            ```sh
            make never
            ```
        """)
    )
    return page


def test_what_is_installed_and_typed_is_what_the_readme_says(page: Path) -> None:
    assert readme.packages(page) == ["git", "python3-venv"]
    assert readme.commands(page) == ["make demo # trains"]


def test_a_readme_that_no_longer_says_it_is_an_error_and_no_empty_run(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("Lockstep.")
    with pytest.raises(LookupError, match="names 0 times what `apt-get install` is to install"):
        readme.packages(page)
    with pytest.raises(LookupError, match="shows no make command"):
        readme.commands(page)


def test_our_readme_says_both() -> None:
    assert {"git", "make", "iproute2", "util-linux", "python3-venv", "golang-go"} <= set(readme.packages())
    typed = ["make demo", "make test", "make playground FOR=1"]
    assert [line.split("#")[0].strip() for line in readme.commands()] == typed
    assert main.NEEDS_NO_RIGHTS in (REPOSITORY / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize(
    ("euid", "missing", "reason"),
    [
        (0, set(), None),
        (0, {"debootstrap"}, None),  # which apt-get installs
        (0, {"apt-get"}, None),
        (0, {"debootstrap", "apt-get"}, "neither debootstrap nor an apt-get to install it is here"),
        (0, {"unshare", "git"}, "git, unshare missing"),
        (1000, set(), "only root can make one"),
    ],
)
def test_why_no_machine_can_be_made_is_told(euid: int, missing: set[str], reason: str | None) -> None:
    assert machine.why_not(euid, EVERYTHING - missing) == reason


@pytest.mark.parametrize(
    ("log", "silent"),
    [
        ("I: Retrieving InRelease\nE: Failed getting release file http://mirror.example/Release\n", True),
        ("W: Failure while installing base packages.\n", False),
        ("", False),
    ],
)
def test_a_mirror_that_does_not_answer_is_told_from_what_went_wrong(log: str, silent: bool) -> None:
    assert machine.says_that_no_mirror_answers(log) is silent


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--required"], 1)])
def test_where_none_can_be_made_that_is_said_and_is_a_failure_only_where_one_has_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], code: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["fresh", "--folder", str(tmp_path), *flags, "make check"])
    assert main.main() == code
    assert "fresh: skipped, as no fresh machine can be made here: only root can make one" in capsys.readouterr().out


def test_of_this_machine_only_the_way_to_packages_is_handed_in() -> None:
    here = {
        "HTTPS_PROXY": "http://proxy.example",
        "PIP_INDEX_URL": "https://mirror.example/simple",
        "SSL_CERT_FILE": "",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "https://environment.example",
        "LOCKSTEP_BUILD_DIR": "/built",
        "PATH": "/opt/go/bin",
    }
    go = {"GOPROXY": "https://file.example", "GOSUMDB": "off", "GOTOOLCHAIN": "local"}
    assert handed_in.variables(here, go) == {
        "HTTPS_PROXY": "http://proxy.example",
        "PIP_INDEX_URL": "https://mirror.example/simple",
        "GOPROXY": "https://environment.example",
        "GOSUMDB": "off",
    }


def test_certificates_that_a_variable_names_are_handed_in_where_they_exist(tmp_path: Path) -> None:
    (tmp_path / "ours.pem").write_text("a certificate")
    named = {"PIP_CERT": str(tmp_path / "ours.pem"), "SSL_CERT_FILE": str(tmp_path / "none.pem"), "GOSUMDB": "off"}
    found = set(handed_in.files(named))
    assert tmp_path / "ours.pem" in found
    assert tmp_path / "none.pem" not in found


STUBBORN = "trap '' TERM; setsid sleep 1000 & mount --bind $0 $0; echo ready; wait"
ENDED_EARLY = """
import sys
from fresh import machine
from kindcluster.ended_early import ends_like_an_error
machine._GRACE = 0.5
with ends_like_an_error():
    machine._apart(["sh", "-c", *sys.argv[1:]], None)
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_it_early_leaves_nothing_running_and_nothing_mounted(
    number: signal.Signals, tmp_path: Path
) -> None:
    if subprocess.run([*machine._APART, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root, for mount and PID namespaces")
    path = os.pathsep.join(str(REPOSITORY / folder) for folder in ("operator", "e2e"))
    begun = subprocess.Popen(
        [sys.executable, "-c", ENDED_EARLY, STUBBORN, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert begun.stdout is not None
        assert "ready" in begun.stdout.readline()
        inside = [record for pid in descendants(begun.pid) if (record := record_of(pid))]
        assert len(inside) >= 3  # unshare, the first process, what has a session of its own
        begun.send_signal(number)
        begun.wait(60)
        begun.stdout.close()
    finally:
        begun.kill()
        begun.wait()
    wait_for("all have ended", lambda: not any(map(is_alive, inside)), seconds=60)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_links_of_nodes_that_were_ended_with_it_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = tmp_path / "root" / "lockstep" / ".build" / "worlds" / "1-2-0"
    settings = Settings(state=str(world), kubeconfig="config")
    settings.save()
    removed: list[str] = []

    def ended_early(*_: object) -> int:
        raise KindClusterError("ended by SIGTERM")

    monkeypatch.setattr(machine, "_apart", ended_early)
    monkeypatch.setattr(machine, "remove_links", removed.append)
    with pytest.raises(KindClusterError):
        machine.Machine(tmp_path, {}).run("make demo")
    assert removed == [settings.bridge]


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return below + [each for child in below for each in descendants(child)]
