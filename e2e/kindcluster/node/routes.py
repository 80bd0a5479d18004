"""The pod network of a kind node made here: the CNI's configuration, and a route to every other node's pods.

Done again and again, so that a node that was started again heals. Runs on Python's standard library.
"""

import json
import os
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONFIGURATION = Path("/etc/cni/net.d/10-lockstep.conflist")
EVERY = 2.0
PATIENCE = 10.0


def nodes() -> list[dict[str, Any]]:
    """Every node, as the API server has it."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    request = urllib.request.Request(f"https://{host}:{port}/api/v1/nodes")
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, context=trust, timeout=PATIENCE) as answer:
        items: list[dict[str, Any]] = json.load(answer)["items"]
        return items


def configuration(subnet: str) -> str:
    """Pods of `subnet`, each on a link of its own."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [[{"subnet": subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "ptp", "ipMasq": True, "mtu": 1500, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": "lockstep", "plugins": plugins})


def write(text: str) -> None:
    """Whole or not at all: containerd reads it whenever it changes."""
    if not CONFIGURATION.exists() or CONFIGURATION.read_text() != text:
        unfinished = CONFIGURATION.with_suffix(".new")
        unfinished.write_text(text)
        unfinished.replace(CONFIGURATION)


def main() -> None:
    """For ever."""
    while True:
        try:
            for node in nodes():
                subnet = node["spec"].get("podCIDR")
                addresses = [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
                if subnet and node["metadata"]["name"] == os.environ["NODE_NAME"]:
                    write(configuration(subnet))
                elif subnet and addresses:
                    subprocess.run(["ip", "route", "replace", subnet, "via", addresses[0]], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(error, flush=True)
        time.sleep(EVERY)


if __name__ == "__main__":
    main()
