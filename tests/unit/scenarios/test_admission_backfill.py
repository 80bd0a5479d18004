"""Who may start before somebody that waits in front, and when that one is promised to start."""

from lockstep.core.model.admission_settings import Backfill
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from support.admission import NOW, reason, run, statuses, world
from support.admission_passes import HOUR, admitted, holding, passed, queue_of


class TestBackfill:
    """Four nodes, two of them taken for another hour; the head needs all four."""

    def cluster(self, *runs: RunView) -> ClusterSnapshot:
        return world([holding("running", "n0", "n1", limit=3600), run("head", 4, at=1.0, timeLimit="2h"), *runs])

    def test_who_ends_before_the_heads_promised_start_may_go_ahead(self) -> None:
        plan = passed(self.cluster(run("short", 2, at=2.0, timeLimit="59m"), run("long", 1, at=3.0, timeLimit="61m")))
        assert admitted(plan) == {"short"}
        assert statuses(plan)["short"].admission.backfilled
        assert reason(plan, "long") == (2, "Priority")
        assert queue_of(plan, "long").message == "behind team/head"

    def test_the_head_is_told_when_it_starts_and_what_that_rests_on(self) -> None:
        told = queue_of(passed(self.cluster()), "head")
        assert told.estimated_start == NOW + HOUR
        assert "uses its whole time limit" in told.assumption
        assert told.blocked_by == ("team/running",)

    def test_nobody_knows_when_a_run_without_a_limit_ends(self) -> None:
        snapshot = world([holding("running", "n0", "n1"), run("head", 4, at=1.0)])
        told = queue_of(passed(snapshot), "head")
        assert told.estimated_start is None
        assert "no time limit" in told.assumption

    def test_conservative_backfill_protects_the_second_in_line_too(self) -> None:
        runs = (run("second", 2, at=2.0, timeLimit="3h"), run("third", 2, at=3.0, timeLimit="3h", nice=1))
        snapshot = world([holding("running", "n0", "n1", "n2", limit=3600), *runs, run("later", 1, at=4.0)])
        easy = passed(snapshot)
        assert reason(easy, "second") == (1, "Resources")
        conservative = passed(snapshot, backfill=Backfill.CONSERVATIVE)
        assert reason(conservative, "third")[1] in ("Resources", "Priority")
        assert statuses(conservative)["third"].queue.estimated_start is not None

    def test_without_backfill_nobody_overtakes_in_its_queue(self) -> None:
        plan = passed(self.cluster(run("short", 2, at=2.0, timeLimit="5m")), backfill=Backfill.DISABLED)
        assert admitted(plan) == set()
        assert reason(plan, "short") == (2, "Priority")

    def test_a_run_that_may_be_cut_gets_as_much_time_as_there_is(self) -> None:
        plan = passed(self.cluster(run("flexible", 2, at=2.0, timeLimit="8h", minTimeLimit="30m")))
        assert admitted(plan) == {"flexible"}
        assert statuses(plan)["flexible"].admission.time_limit == 3600

    def test_what_was_used_before_a_suspension_is_not_given_again(self) -> None:
        used = run("used", 2, at=2.0, timeLimit="90m", status={"held_seconds": 2400})
        plan = passed(self.cluster(used))
        assert admitted(plan) == {"used"}
        assert statuses(plan)["used"].admission.time_limit == 5400

    def test_a_deadline_that_cannot_be_met_is_said_and_holds_up_nobody(self) -> None:
        late = run("late", 3, at=1.0, timeLimit="2h", deadline="1970-01-01T03:00:00Z")
        plan = passed(world([holding("running", "n0", "n1", limit=3600), late, run("next", 2, at=2.0)]))
        assert reason(plan, "late")[1] == "DeadlineUnreachable"
        assert admitted(plan) == {"next"}
