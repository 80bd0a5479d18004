"""What the operator's installation says about every gang pod."""

import pytest

from lockstep.core.model.gang_settings import SHARED_CLOCK_SKEW, GangSettings, time_variables


@pytest.mark.parametrize(
    ("seconds", "value"), [(SHARED_CLOCK_SKEW, None), (30.0, "30"), (2.5, "2.5"), (0.0, "0")], ids=str
)
def test_programs_are_told_of_a_clock_skew_that_they_do_not_take_for_granted(seconds: float, value: str | None) -> None:
    assert time_variables(seconds, trusted=True).get("LOCKSTEP_SHARED_CLOCK_SKEW") == value
    told = time_variables(seconds, trusted=False)
    assert (told.get("LOCKSTEP_SHARED_CLOCK_SKEW"), told["LOCKSTEP_TRUST_TIMES"]) == (value, "no")


def test_the_config_map_of_the_worker_is_named_by_the_worker_alone() -> None:
    one = GangSettings(worker_archive=b"one")
    assert one.worker_config_map == GangSettings(worker_archive=b"one", termination_grace=5).worker_config_map
    assert one.worker_config_map != GangSettings(worker_archive=b"two").worker_config_map
    assert len(one.worker_config_map) == len("lockstep-worker-") + 12
