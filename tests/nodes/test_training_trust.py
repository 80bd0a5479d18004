"""Another CA under programs that train: real workers, and files that change as a kubelet changes them.

Only in `make test-outages`: a test kubelet reads ConfigMaps each 30 s, and a change of CA has to wait for it twice.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest

from harness.site import TLS_SECRET
from harness.training import SETTINGS, TrainingSite, training_world
from harness.waiting import wait_for
from lockstep.api.base import names

OVERLAP = float(os.environ.get("LOCKSTEP_TEST_CA_OVERLAP", "0"))
pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(not OVERLAP, reason="takes minutes: LOCKSTEP_TEST_CA_OVERLAP=60, or make test-outages"),
]


@pytest.fixture(scope="module")
def site() -> Iterator[TrainingSite]:
    with training_world({**SETTINGS, "caOverlap": OVERLAP}) as world:
        yield TrainingSite(world)


def authorities(site: TrainingSite) -> list[str]:
    """What the Secret has of CAs: the one in force, then the next or the last one."""
    data = site.world.cluster.api.get(TLS_SECRET)["data"]
    return [base64.b64decode(data[key]).decode() for key in ("ca.crt", "next-ca.crt", "old-ca.crt") if key in data]


def test_workers_go_on_under_another_ca_and_a_new_operator_without_being_started_again(site: TrainingSite) -> None:
    run = site.train("follows", 2, 100_000)
    run.wait_until_step(1, 5)
    pods, (first,) = run.pod_uids, authorities(site)
    site.world.kubectl(
        *("annotate", "secret", "lockstep-worker-tls", "-n", "lockstep-system", f"{names.ANNOTATION_ROTATE_CA}=now")
    )

    def has_changed() -> bool:
        return len(authorities(site)) == 1 and authorities(site) != [first]

    wait_for("all steps are done", has_changed, seconds=6 * OVERLAP + 60, every=2.0)
    assert run.status["attempt"] == 1
    site.kill_operator()  # no connection from before is left
    site.world.operator.wait_until_leading()
    run.kill_process(1)  # told by its worker, and answered to both
    run.wait_until_step(2, 5, 120)
    assert run.pod_uids == pods
