"""The Python that docs/worker.md shows for JAX runs as it stands, whatever else the image has."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.worker.child.signs import sign_of

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGE = Path(__file__).parents[3] / "docs" / "worker.md"
SNIPPET = next(found[1] for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8")) if "jax.distributed" in found[1])
WITHOUT = "import sys; sys.modules['kubernetes'] = None\n"
SECONDS = 240

pytestmark = pytest.mark.process


def ran(program: str) -> subprocess.CompletedProcess[str]:
    """The program as the only process of a gang, in a pod: Kubernetes says where it is, and gives no account."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = port.getsockname()[1]
    said = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{number}", "JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1", "JAX_PLATFORMS": "cpu"}
    here = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-c", program], env=here | pod | said, capture_output=True, text=True, timeout=SECONDS
    )


def needs_jax() -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX comes with make setup-demo")


@pytest.mark.parametrize("before", ["", WITHOUT], ids=["with kubernetes", "without"])
def test_the_processes_of_a_gang_find_each_other_as_the_docs_show_it(before: str) -> None:
    needs_jax()
    told = "\nprint(jax.process_index(), jax.process_count())\n"
    done = ran(before + SNIPPET + told)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0 1"


def test_what_jax_says_where_it_is_left_to_look_for_kubernetes_is_a_known_sign() -> None:
    needs_jax()
    line = next(line for line in SNIPPET.splitlines(keepends=True) if "cluster_detection_method" in line)
    done = ran(SNIPPET.replace(line, ""))
    assert done.returncode != 0
    assert "Kubernetes:NoToken" in {sign_of(each.encode(), "") for each in done.stderr.splitlines()}
