"""Rules that spec and pod template share."""

from typing import Any

import pytest

from lockstep.core.model.problems import lockstep_mounts, reserved_variable
from support.world import spec


@pytest.mark.parametrize(
    ("checkpoint", "more"),
    [
        (None, set()),
        ({"shared": {"claimName": "lustre"}}, {"/shared-checkpoints"}),
        ({"local": {"storage": "nvme"}}, {"/local-checkpoints"}),
        (
            {"shared": {"claimName": "lustre"}, "local": {"storage": "nvme"}},
            {"/shared-checkpoints", "/local-checkpoints"},
        ),
    ],
)
def test_tiers_are_mounted_where_they_are_asked_for(checkpoint: Any, more: set[str]) -> None:
    bare = lockstep_mounts(spec(checkpoint=None))
    assert "/dev/shm" in bare
    assert lockstep_mounts(spec(checkpoint=checkpoint)) == bare | more


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("LOCKSTEP_RANK", True),
        ("PET_RDZV_BACKEND", True),
        ("MASTER_ADDR", True),
        ("PET_NNODES", True),
        ("JAX_PROCESS_ID", True),
        ("PET_NPROC_PER_NODE", False),
        ("MASTER_ADDRESS", False),
        ("lockstep_rank", False),
        ("SEED", False),
        ("", False),
    ],
)
def test_variables_that_lockstep_sets_at_every_start_are_its_own(name: str, reserved: bool) -> None:
    assert reserved_variable(name) is reserved
