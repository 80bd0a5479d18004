"""The process that plays the workers of all simulated nodes of a world."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from harness.kube import OPERATOR_NAMESPACE, ROOT
from harness.world import World

_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # also after SIGKILL


@contextlib.contextmanager
def simulated_workers(world: World, *options: str) -> Iterator[subprocess.Popen[str]]:
    """With ``options`` of localcluster.simworkers. Its standard output has what it saw, once it has ended."""
    secret = world.kubectl.json("get", "secret", "-n", OPERATOR_NAMESPACE, "lockstep-worker-tls")
    ca_file = world.folder / "workers-ca.crt"
    ca_file.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    command = [*_ENDS_WITH_US, sys.executable, "-m", "localcluster.simworkers"]
    where = [f"--kubeconfig={world.cluster.kubeconfig}", f"--operator-url={world.operator.url}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "e2e")}
    with subprocess.Popen(
        [*command, *where, f"--ca-file={ca_file}", *options], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()
