"""What a rank says before it ends decides what is done: the real worker reads it, the operator acts on it."""

import json
import signal

import pytest

from support.training import NAMESPACE, TrainingSite

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


def test_a_gang_that_hangs_leaves_its_stacks_and_starts_again_in_its_pods(site: TrainingSite) -> None:
    # Ranks wait for each other as long as one likes, as in a collective operation.
    options = ("--listen", "--patience=600", "--later-delay=0.01")
    run = site.train("hangs", 3, 200, *options, recovery={"hangTimeout": "8s"})
    run.wait_until_saved(1, 20)
    pods, node = run.pod_uids, run.nodes[1]
    run.signal_process(1, signal.SIGSTOP)
    run.wait_until_succeeded()
    run.assert_undisturbed(200)
    assert run.pod_uids == pods
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"], first["action"]) == ("Hang", 1, node, "RestartInPlace")
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{first['stacks']}"
    data = site.world.cluster.api.get(path)["data"]
    stacks = {row["ranks"]: row["stacks"] for row in json.loads(data["stacks.json"])}
    assert "stopped by a signal" in stacks["1"]
    for rank in "02":
        assert "exchange (stub_trainer.py:" in stacks[rank]
