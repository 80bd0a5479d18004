"""The machine's clock as the operator sees it."""

import pytest

from lockstep.controller.runtime.clock import SLEW, SystemClock

BEGUN = 1_750_000_000.0


class Machine:
    """Its wall clock, which may be set, and the time since it was booted, which may not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.uptime = BEGUN, 1000.0
        monkeypatch.setattr("lockstep.controller.runtime.clock.time.time", lambda: self.wall)
        monkeypatch.setattr("lockstep.controller.runtime.clock.time.clock_gettime", lambda _: self.uptime)

    def go_on(self, seconds: float) -> None:
        self.wall += seconds
        self.uptime += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_time_goes_by_as_it_does_on_the_wall(machine: Machine) -> None:
    clock = SystemClock()
    machine.go_on(3600.0)
    assert clock.now() == pytest.approx(BEGUN + 3600.0)


@pytest.mark.parametrize("step", [-3600.0, -5.0, 5.0, 3600.0])
def test_a_wall_clock_that_is_set_is_followed_without_a_jump(machine: Machine, step: float) -> None:
    clock = SystemClock()
    machine.go_on(60.0)
    before = clock.now()
    machine.wall += step
    assert clock.now() == pytest.approx(before)
    for _ in range(int(abs(step) / SLEW) + 1):
        machine.go_on(1.0)
        now = clock.now()
        assert 1.0 - SLEW - 1e-6 <= now - before <= 1.0 + SLEW + 1e-6
        before = now
    assert clock.now() == pytest.approx(machine.wall)


def test_what_a_lease_is_counted_by_is_not_touched_by_it(machine: Machine) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    machine.wall += 3600.0
    machine.go_on(10.0)
    clock.now()
    assert clock.monotonic() - begun == pytest.approx(10.0)
