"""What a rank says before it ends decides what is done: the real worker reads it, the operator acts on it."""

import pytest

from harness.training import TrainingSite

pytestmark = pytest.mark.nodes


def test_a_rank_whose_gpu_fell_off_the_bus_goes_on_elsewhere(site: TrainingSite) -> None:
    xid = "NVRM: Xid (PCI:0000:41:00): 79, pid=4242, GPU has fallen off the bus."
    run = site.train("fallen", 3, 40, "--save-every=10", f"--fail=1:25:{xid}")
    run.wait_until_saved(1, 20)
    faulty = run.nodes[1]
    run.wait_until_succeeded(120)
    run.assert_undisturbed(40)
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"], first["action"]) == ("Hardware", 1, faulty, "Replace")
    assert "Xid:79" in first["message"]
    assert not first.get("charged", False)
    assert (first["lastStep"], first["stepsLost"]) == (24, 4)
    assert faulty not in run.nodes
    assert [entry["node"] for entry in run.status["recovery"]["excludedNodes"]] == [faulty]


def test_a_rule_decides_by_what_a_rank_printed(site: TrainingSite) -> None:
    # The line comes from a rank whose exit code says nothing, and long before its end.
    script = 'test "$LOCKSTEP_NODE_RANK" = 1 || exec sleep 100; echo "fabric: link 3 flapped" >&2; sleep 1; exit 1'
    rules = [{"name": "fabric", "logPattern": r"link \d+ flapped", "action": "Stop"}]
    run = site.apply("ruled", 2, ["sh", "-c", script], recovery={"rules": rules})
    run.wait_until_finished()
    assert [(use["name"], use["count"]) for use in run.status["recovery"]["rulesUsed"]] == [("fabric", 1)]
    assert len(run.attempts) == 1
    assert "rule fabric" in run.condition("Succeeded")["message"]
