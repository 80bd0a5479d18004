"""``python -m kindcluster``: the operator's image, and a kind cluster with it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kindcluster import docker, images, site
from kindcluster.ended_early import alone, ends_like_an_error
from kindcluster.errors import KindClusterError
from kindcluster.host import install
from localcluster.build import build_dir
from localcluster.errors import LocalClusterError


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="kindcluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("image", help="build the operator's image")
    verbs.add_parser("up", help="bring a cluster up with Lockstep in it, and leave it up")
    verbs.add_parser("down", help="take it down, and put back what it changed on this machine")
    during = verbs.add_parser("during", help="bring it up, run a command, take it down")
    during.add_argument("--browser", action="store_true", help="install a Chromium first, where apt-get offers one")
    during.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    folder = build_dir() / "kind"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone("kind", "cluster of containers", _say):
            return int(_VERBS[arguments.verb](folder, arguments))
    except (KindClusterError, LocalClusterError) as error:
        print(f"kindcluster: {error}", file=sys.stderr)
        return 1


def _image(folder: Path, arguments: argparse.Namespace) -> int:
    with ends_like_an_error() as from_now_on_ignored, docker.Daemon(folder).up(_say) as running:
        try:
            name = images.operator(running, images.base(running, folder, _say), _say)
            if running.is_ours:  # and gone in a moment: what is to last is a file
                archive = build_dir() / "image" / "lockstep-operator.tar"
                running("save", "--output", archive, name)
                _say(f"{name} is in {archive}; `docker load --input` takes it")
        finally:
            from_now_on_ignored()
    return 0


def _up(folder: Path, arguments: argparse.Namespace) -> int:
    daemon = docker.Daemon(folder)
    with ends_like_an_error() as from_now_on_ignored:
        try:
            cluster = site.bring_up(daemon.found_or_started(_say), folder, _say)
        except BaseException:
            from_now_on_ignored()
            _take_down(daemon, folder)
            raise
    _say(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(folder: Path, arguments: argparse.Namespace) -> int:
    _take_down(docker.Daemon(folder), folder)
    return 0


def _during(folder: Path, arguments: argparse.Namespace) -> int:
    if arguments.browser and not any(map(shutil.which, _BROWSERS)):
        try:
            install({_BROWSERS[0]: _BROWSERS[0]}, log=folder / "packages.log", report=_say)
        except KindClusterError as error:
            _say(f"going on without a Chromium: {error}")
    with ends_like_an_error() as from_now_on_ignored, docker.Daemon(folder).up(_say) as running:
        try:
            cluster = site.bring_up(running, folder, _say)
            environment = {**os.environ, **running.environment, "KUBECONFIG": str(cluster.kubeconfig)}
            return subprocess.run([*_WITH_US, *arguments.command], env=environment, check=False).returncode
        finally:
            from_now_on_ignored()
            site.take_down(running, folder)


def _take_down(daemon: docker.Daemon, folder: Path) -> None:
    try:
        running = daemon.found()
        if running is not None:
            site.take_down(running, folder)
    finally:
        daemon.stop()


# A command whose cluster has gone is of no use, even where we were killed and could tell it nothing.
_WITH_US = ("setpriv", "--pdeathsig", "TERM")
_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
_VERBS = {"image": _image, "up": _up, "down": _down, "during": _during}


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
