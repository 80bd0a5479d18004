from lockstep.core.placement.node_conditions import bad_conditions
from support.world import node


def test_only_conditions_on_which_nothing_can_train_are_faults() -> None:
    conditions = {"XidCriticalError": "GPU 3", "FrequentKubeletRestart": "five in an hour", "Fancy": "yes"}
    assert bad_conditions(node("n0", conditions=conditions)) == ("XidCriticalError",)
