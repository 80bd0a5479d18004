"""Every dish of the menu, with real training: it comes out as the menu says, and nothing of what was learnt differs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from faults.conftest import SMALL_CLAIM
from faults.menu import DISRUPTIONS, MENU, PREEMPTIONS, Dish, Fault, Phase
from faults.stage import HIT, PATIENCE, SAVE_AT, SAVE_EVERY, SAVED_BEFORE_STOP, TRAINING_AT, Reference, Stage
from faults.strikes import struck
from harness.training import CLAIM, TrainingRun, TrainingSite

pytestmark = pytest.mark.nodes
FINISH_SECONDS = 2 * PATIENCE
RESUMED: dict[Phase, int] = {
    Phase.LAUNCH: 0,
    Phase.TRAINING: TRAINING_AT - TRAINING_AT % SAVE_EVERY,
    Phase.SAVE: SAVE_AT - SAVE_EVERY,
    Phase.RESTORE: TRAINING_AT - TRAINING_AT % SAVE_EVERY,
}
"""The newest step that is saved when the fault has struck."""
SILENT = {Fault.SIGSTOP, Fault.CUT_PEERS}
"""The rank hit says nothing: where its peers give up first, it is one of them that is named."""
ONE_BACK: dict[Fault, set[Phase]] = {
    Fault.TORN_SAVE: {Phase.TRAINING, Phase.RESTORE},  # what is torn was valid before
    Fault.NAN: {Phase.TRAINING, Phase.RESTORE},  # a loss that breaks takes one more back than was saved before it
}
"""Where it is resumed from the newest but one."""


def served(dish: Dish) -> object:
    return pytest.param(dish, id=dish.name, marks=[pytest.mark.covering] if dish.covering else [])


@pytest.mark.parametrize("dish", [served(dish) for dish in MENU])
def test_a_run_comes_out_as_the_menu_says(site: TrainingSite, reference: Reference, dish: Dish) -> None:
    stage = Stage(site, dish, SMALL_CLAIM if dish.fault is Fault.FULL_DISK else CLAIM)
    stage.apply()
    stage.reach()
    with struck(stage):
        run = stage.run
        if dish.phase is Phase.STOP:
            run.wait("it is suspended", lambda: run.is_true("Suspended") and not live_pods(run), PATIENCE)
            save = run.status["checkpoint"]["save"]
            assert save["outcome"] in dish.save, save
            run.change(suspend=False)
        run.wait_until_finished(FINISH_SECONDS)
    assert_ended_as_promised(dish, run)
    assert_ends_are_explained(dish, run)
    if run.is_true("Succeeded"):
        assert_learnt_the_same(run, reference)


def live_pods(run: TrainingRun) -> list[str]:
    """Those that still hold their nodes. One that died of itself is kept for its log."""
    return [pod["metadata"]["name"] for pod in run.pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def assert_ended_as_promised(dish: Dish, run: TrainingRun) -> None:
    end = run.condition("Succeeded")
    assert end["reason"] == dish.ends, run.summary()
    for words in dish.words:
        assert words in end["message"], end["message"]


def assert_ends_are_explained(dish: Dish, run: TrainingRun) -> None:
    """Each attempt ended by what the menu says, and who is not to blame pays nothing."""
    attempts = run.attempts
    told = [(entry["number"], entry["cause"], entry.get("message")) for entry in attempts]
    if dish.fault is Fault.MISTAKE:
        assert {entry["cause"] for entry in attempts} == set(dish.causes), told
        return
    before = {Phase.RESTORE: ["Application"], Phase.STOP: ["Suspended"]}.get(dish.phase, [])
    after = ["Succeeded"] if run.is_true("Succeeded") else []
    unharmed = dish.or_unharmed and len(attempts) == len(before) + len(after)
    hits = [dish.causes] if dish.causes and not unharmed else []
    wanted = [*([cause] for cause in before), *hits, *([cause] for cause in after)]
    assert len(attempts) == len(wanted), told
    for entry, causes in zip(attempts, wanted, strict=True):
        assert entry["cause"] in causes, told
    if hits:
        hit, following = attempts[len(before)], attempts[len(before) + 1 :]
        if dish.fault in PREEMPTIONS:
            save = run.status["checkpoint"].get("save", {})
            assert save.get("outcome") in (dish.save or (None,)), save
            # A save of the program's own that comes first is the answer; the one asked for may be whole too by the end.
            saved = {save["step"], save.get("atStep") or save["step"]} if save.get("step") else {RESUMED[dish.phase]}
            assert following[0]["resumeStep"] in saved, (save, told)
        elif hit["cause"] == "Application" and dish.fault in SILENT:
            blamed = [failure["time"] for failure in run.status["recovery"].get("firstFailures", ())]
            assert hit["seenAt"] not in blamed, f"a complaint about a peer was taken for a fault of {hit['node']}"
        elif dish.fault not in (Fault.FULL_DISK, Fault.NAN, Fault.CUT_PEERS):  # these show on several ranks at once
            assert hit["rank"] == HIT, told
        if dish.phase in RESUMED and following and dish.fault not in PREEMPTIONS:
            back = SAVE_EVERY if dish.phase in ONE_BACK.get(dish.fault, ()) else 0
            if dish.fault is Fault.FULL_DISK:
                assert following[0]["resumeStep"] >= SAVE_AT - SAVE_EVERY, told
            else:
                assert (following[0].get("resumeStep") or 0) == RESUMED[dish.phase] - back, told
        if dish.fault in DISRUPTIONS:
            assert not hit.get("charged"), told
    if dish.phase is Phase.STOP:
        save = run.status["checkpoint"]["save"]
        kept = save["outcome"] == "Saved" and dish.fault is not Fault.TORN_SAVE
        assert attempts[1]["resumeStep"] == (save["step"] if kept else SAVED_BEFORE_STOP), told
    if dish.fault in DISRUPTIONS:
        assert not run.status.get("recovery", {}).get("consecutiveNoProgress"), run.status["recovery"]
    assert all(one["number"] < other["number"] for one, other in pairwise(attempts))


def assert_learnt_the_same(run: TrainingRun, reference: Reference) -> None:
    run.assert_lineage_is(lambda rank: reference[rank])
