"""What somebody in another terminal needs: a kubeconfig, programs on PATH, addresses; and the words that say so."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import build, kubeconfig


def folder() -> Path:
    """Where all of it lies while a playground is up; its name is the same each time."""
    return build.build_dir() / "playground"


@dataclass(frozen=True)
class Guide:
    """``access`` is a kubeconfig's content, ``page`` the web page's address, ``page_token`` a token that opens that and
    nothing else, ``state`` the folder of the cluster."""

    access: Mapping[str, Any]
    page: str
    page_token: str
    state: Path

    def write(self) -> None:
        """The files. They are for their owner alone."""
        kubeconfig.write(folder() / "kubeconfig", self.access)
        file = folder() / "env"
        file.touch(mode=0o600)
        file.write_text(self._environment())

    def words(self) -> str:
        """What to type."""
        env = os.path.relpath(folder() / "env")
        return f"""
The playground is up. Type in another terminal:

    source {env}
    lockstep queue -A
    lockstep explain tokenizer-v2 -n language
    lockstep explain mixtral -n language
    kubectl get nodes -L topology.kubernetes.io/rack

The web page, which this link opens signed in:

    {self.page}/ui/#token={self.page_token}

Namespaces language and vision belong to two teams on simulated nodes, playground is yours, with four nodes where
programs really run. docs/first-hour.md is a tutorial for them.

Ctrl-C ends it and takes everything away.
"""

    def _environment(self) -> str:
        programs = [str(Path(sys.executable).parent), str(build.build_dir() / "bin")]
        node = f"PYTHONPATH={build.REPOSITORY / 'e2e'} {sys.executable} -m localcluster.processnodes"
        return f"""\
# `source` this in a shell, for as long as the playground is up.
export KUBECONFIG={shlex.quote(str(folder() / "kubeconfig"))}
export PATH={shlex.quote(":".join(programs))}:$PATH
export PLAYGROUND_PAGE={self.page}
# The power of a node that really runs programs: power-off real-1
power-off() {{ {node} --state {shlex.quote(str(self.state))} kill-node "$1"; }}
power-on() {{ {node} --state {shlex.quote(str(self.state))} return-node "$1"; }}
"""


def clear() -> None:
    """Leave nothing of a playground that is down, or was killed."""
    shutil.rmtree(folder(), ignore_errors=True)
