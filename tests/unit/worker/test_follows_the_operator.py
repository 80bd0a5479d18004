"""A worker whose operator moves, changes its CA and is another one all of a sudden: it follows, and trains on."""

import time

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, run_attempt, until
from lockstep.controller.workers.tls import Material, new_material

pytestmark = pytest.mark.process


def assert_it_is_heard(operator: FakeOperator) -> None:
    """… on a connection that is new, of the attempt that has been running all the time."""
    operator.close()
    count = len(operator.requests)
    operator.open()
    state = operator.wait_for(lambda state: True, since=count)
    assert (state["phase"], state["attempt"]) == ("Running", 1)


def test_a_worker_follows_a_change_of_ca_in_all_its_steps(operator: FakeOperator, launch: LaunchWorker) -> None:
    worker = launch("sleep", "100")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    first, second = operator.material, new_material(["127.0.0.1"], time.time())
    for material, trusted in (
        (first, first.ca_bundle + second.ca_bundle),
        (second, second.ca_bundle + first.ca_bundle),
        (second, second.ca_bundle),
    ):
        operator.serve_by(material, trusted)
        assert_it_is_heard(operator)
    assert worker.process.poll() is None


@pytest.mark.parametrize("nonsense", ["", "half a certif", "\N{SNOWMAN}"])
def test_a_file_of_authorities_that_makes_no_sense_changes_nothing(
    operator: FakeOperator, launch: LaunchWorker, nonsense: str
) -> None:
    launch("sleep", "100")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    operator.serve_by(operator.material, nonsense)
    assert_it_is_heard(operator)


def test_an_operator_by_another_ca_is_not_talked_to_until_the_worker_is_told_of_it(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("sleep", "100")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    stranger: Material = new_material(["127.0.0.1"], time.time())
    operator.serve_by(stranger, operator.material.ca_bundle)
    operator.close()
    broken = operator.broken
    operator.open()
    until(lambda: operator.broken > broken)
    count = len(operator.requests)  # what was under way when it closed has been heard by now
    until(lambda: operator.broken > broken + 3)
    assert len(operator.requests) == count
    operator.serve_by(stranger, stranger.ca_bundle)
    assert operator.wait_for(lambda state: True, since=count)["phase"] == "Running"


def test_a_new_leader_hears_of_an_exit_that_the_old_one_took_to_its_grave(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("sh", "-c", "exit 3")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Exited")
    # It was answered, and died before anything came of it. The next one knows nothing and asks who this is.
    operator.close()
    operator.epoch = [100, 1]
    operator.refusals += [(503, "this replica does not lead"), (409, "register first")]
    count = len(operator.requests)
    operator.open()
    state = operator.wait_for(lambda state: "inventory" in state, since=count)
    assert (state["phase"], state["attempt"], state["exit"]["code"]) == ("Exited", 1, 3)
