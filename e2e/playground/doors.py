"""Ways in for an ordinary user, whose playground is in namespaces of its own with a loopback of its own.

Sockets that listen on this machine's loopback are made before the namespaces are entered, and belong to this machine
ever after: whoever connects there is passed on inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from localcluster.errors import LocalClusterError
from localcluster.processnodes.daemon import check_rights
from localcluster.processnodes.errors import ProcessNodesError
from localcluster.processnodes.relay import relay

_PROGRAMS = ("ip", "nsenter", "setpriv", "unshare")
_APART = ("unshare", "--user", "--map-root-user", "--net", "--mount")
_RIGHTS = "e2e/localcluster/processnodes/README.md#rights"


class Doors:
    """``sockets`` that listen outside; none where outside and inside are the same."""

    def __init__(self, sockets: Sequence[socket.socket] = ()) -> None:
        self._sockets = list(sockets)

    def lead_to(self, url: str) -> str:
        """The URL by which a server on the inner loopback is reached from outside, from now on."""
        if not self._sockets:
            return url
        door = self._sockets.pop()
        threading.Thread(target=asyncio.run, args=(_open(door, url),), name="door", daemon=True).start()
        return f"{url.partition('://')[0]}://127.0.0.1:{door.getsockname()[1]}"


async def _open(door: socket.socket, url: str) -> None:
    server = await relay(url, door)
    await server.serve_forever()


def rights_or_reenter(inherited: str, arguments: Sequence[str]) -> Doors:
    """The doors, where this process may make nodes; else it is replaced by one that may, with ``arguments`` and
    descriptors of doors, which are then ``inherited``. Raises LocalClusterError, which says what is missing."""
    if inherited:
        return Doors([socket.socket(fileno=int(number)) for number in inherited.split(",")])
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise LocalClusterError(f"{', '.join(missing)} not found: install iproute2 and util-linux")
    with contextlib.suppress(ProcessNodesError):
        check_rights()
        return Doors()
    tried = subprocess.run([*_APART, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise LocalClusterError(
            f"the playground needs root, or user namespaces, which this machine does not give to you ({_RIGHTS}): "
            + tried.stderr.strip()
        )
    return _reenter(arguments)


def _reenter(arguments: Sequence[str]) -> NoReturn:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for door in doors:
        door.set_inheritable(True)
    numbers = ",".join(str(door.fileno()) for door in doors)
    again = [sys.executable, "-m", "playground", *arguments, f"--doors={numbers}"]
    os.execvp(_APART[0], [*_APART, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again])
