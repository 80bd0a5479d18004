"""Where steps run, the GPUs that they hold for themselves, and sruns that wait for them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.layout import IDLE, InUse, Layout, LayoutError
from lockstep.slurm.srun import Step, parse
from lockstep.worker.launchers.slurm import STOPPING, StartedBatch
from lockstep.worker.shims.srun import Laid, laid_out
from lockstep.worker.steps.credentials import AttemptGang
from lockstep.worker.steps.shimmed import Here
from lockstep.worker.steps.slurm import devices, registry
from lockstep.worker.steps.slurm.job import JobHere
from lockstep.worker.steps.slurm.registry import StepRecord

JOB = SlurmJob(123, ["a", "b"], [8, 8], 4, "train", "ann", 1000, "gpu", "main", "/w", "login", 1, 0)


class Node:
    """A node of the job, where sruns begin steps. ``then``: what happens while one of them waits, once for each
    look."""

    def __init__(self, directory: Path, rank: int = 0) -> None:
        self.here = JobHere(Here(str(directory), AttemptGang("u", 1, rank, ())), StartedBatch(JOB, [["a"], ["b"]]))
        self.directory = directory
        self.said: list[str] = []
        self.then: list[Callable[[], None]] = []
        self.slept: list[float] = []

    def step(self, pid: int = 0) -> StepRecord:
        number = registry.next_step(str(self.directory), self.here.at.gang.rank)
        return StepRecord(number, pid or os.getpid(), registry.born_of(pid or os.getpid()), "x", ["a"], 1, 0.0)

    def begin(self, wanted: dict[str, int], step: Step | None = None, **environ: str) -> StepRecord:
        """A step with a task on each of these nodes, which wants so many GPUs there."""
        nodes = [JOB.nodes.index(node) for node in wanted or ["a"]]
        laid = Laid([Layout(nodes, [[rank] for rank in range(len(nodes))])], [list(wanted.values()) or None], [])
        return self._enter(lambda used: laid, step or Step(), **environ)

    def srun(self, options: str, **environ: str) -> StepRecord:
        """As in a script."""
        steps = parse([*options.split(), "x"], {"SLURM_JOB_NUM_NODES": "2", **environ})
        return self._enter(lambda used: laid_out(steps, JOB, [["a"], ["b"]], used), steps[0], **environ)

    def _enter(self, lay: Callable[[InUse], Laid], step: Step, **environ: str) -> StepRecord:
        entered = devices.enter(self.here, self.step(), step, lay, environ, self.said.append, self._sleep)
        assert entered.record.nodes == entered.laid.nodes(JOB)
        return entered.record

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert self.then, "it waits for ever"
        self.then.pop(0)()

    def end(self, record: StepRecord) -> None:
        registry.leave(str(self.directory), record)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_steps_that_run_at_once_have_different_gpus_of_each_node(node: Node) -> None:
    assert node.begin({"a": 1}).gpus == {"a": [0]}
    assert node.begin({"a": 1, "b": 1}).gpus == {"a": [1], "b": [0]}
    assert node.begin({"b": 2}).gpus == {"b": [1, 2]}
    assert node.said == []


def test_what_a_step_had_is_free_once_it_has_ended_or_its_srun_is_gone(node: Node) -> None:
    first = node.begin({"a": 4})
    node.end(first)
    gone = node.step()._replace(born="1", gpus={"a": [0, 1]})  # another process has its PID by now
    registry.enter(str(node.directory), gone)
    assert node.begin({"a": 4}).gpus == {"a": [0, 1, 2, 3]}


def test_a_step_waits_until_there_are_as_many_and_says_so_once(node: Node) -> None:
    first, second = node.begin({"a": 3}), node.begin({"a": 1})
    node.then = [lambda: None, lambda: node.end(second), lambda: node.end(first)]
    waited = node.begin({"a": 2})
    assert waited.gpus == {"a": [0, 1]}
    assert node.said == [
        "srun: Job 123 step creation temporarily disabled, retrying (Requested nodes are busy)",
        f"srun: Step created for StepId=123.{waited.step}",
    ]
    assert node.slept == pytest.approx([0.1, 0.15, 0.225])


def test_a_quiet_step_waits_without_a_word(node: Node) -> None:
    first = node.begin({"a": 4})
    node.then = [lambda: node.end(first)]
    assert node.begin({"a": 1}, Step(quiet=True)).gpus == {"a": [0]}
    assert node.said == []


def test_a_step_that_is_to_begin_at_once_is_refused(node: Node) -> None:
    node.begin({"a": 4})
    with pytest.raises(LayoutError, match="Unable to create step for job 123: Requested nodes are busy"):
        node.begin({"a": 1}, Step(immediate=0))


def test_a_step_that_overlaps_waits_for_nobody_and_nobody_for_it(node: Node) -> None:
    node.begin({"a": 3})
    assert node.begin({"a": 2}, Step(overlap=True)).gpus == {"a": [0, 3]}
    assert node.begin({"a": 1}).gpus == {"a": [3]}
    assert len(registry.running(str(node.directory))) == 3


@pytest.mark.process
def test_what_a_step_is_told_before_it_listens_is_heard_then() -> None:
    """In a process of its own: in this one any thread may be the one that hears a signal."""
    script = """
import os
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.signals import catch, keep_messages

class Output:
    def listen(self):
        print("heard", flush=True)

keep_messages()
os.kill(os.getpid(), registry.HEARS)
print("kept", flush=True)
catch(Output())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["kept", "heard"]), done.stderr


def test_steps_that_a_step_begins_share_what_it_has(node: Node) -> None:
    outer = node.begin({"a": 4})
    inner = [node.begin({"a": 1}, SLURM_STEP_ID=str(outer.step)) for _ in range(2)]
    assert [each.gpus for each in inner] == [{"a": [0]}, {"a": [1]}]


def test_a_job_that_ends_meanwhile_begins_no_step(node: Node) -> None:
    node.begin({"a": 4})
    node.then = [(node.directory / STOPPING).touch]
    with pytest.raises(LayoutError, match="already completing or completed"):
        node.begin({"a": 1})


def test_an_srun_that_is_interrupted_waits_no_more(node: Node) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    node.begin({"a": 4})
    node.then = [interrupt]
    with pytest.raises(LayoutError):
        node.begin({"a": 1})
    assert node.said[-1] == "srun: Cancelled pending job step with signal 2"


def test_a_step_that_wants_none_for_itself_is_listed_and_shares_all(node: Node) -> None:
    node.begin({"a": 4})
    assert node.begin({}).gpus == {}
    assert [record.gpus for record in registry.running(str(node.directory))] == [{"a": [0, 1, 2, 3]}, {}]


def test_what_is_not_counted_elsewhere_than_on_the_first_node_is_said(tmp_path: Path) -> None:
    node = Node(tmp_path, rank=1)
    node.begin({"a": 1})
    [said] = node.said
    assert "whose srun runs on another node are not known here" in said


GPUS = "-N1 -n1 --gpus-per-node=4"


def test_steps_in_the_background_that_name_no_node_run_on_those_that_have_room(node: Node) -> None:
    first, second = node.srun(GPUS), node.srun(GPUS)
    assert [first.nodes, second.nodes] == [["a"], ["b"]]
    assert node.said == [], "nobody waits"
    node.then = [lambda: node.end(second)]
    third = node.srun(GPUS)
    assert (third.nodes, third.gpus) == (["b"], {"b": [0, 1, 2, 3]}), "it waits for whoever ends first"
    node.end(first)
    assert node.srun("-N1 -n1 --gres=gpu:1").nodes == ["a"]


def test_steps_that_say_nothing_of_gpus_run_where_the_fewest_do(node: Node) -> None:
    first = node.srun("-N1 -n1")
    assert [first.nodes, *(node.srun("-N1 -n1").nodes for _ in range(3))] == [["a"], ["b"], ["a"], ["b"]]
    node.end(first)
    assert node.srun("-N1 -n1").nodes == ["a"]
    assert node.srun("-N2 -n2").nodes == ["a", "b"]


def test_of_steps_with_gpus_a_node_is_spared_whose_gpus_a_step_shares(node: Node) -> None:
    node.srun("-N1 -n1")
    assert [node.srun("-N1 -n1 --gres=gpu:2").nodes for _ in range(3)] == [["b"], ["b"], ["a"]]


def test_a_step_that_overlaps_takes_nobodys_place_and_looks_at_the_first_nodes(node: Node) -> None:
    for options in ("-N1 -n1 --overlap", "-N1 -n1 --gres=gpu:4 --overlap"):
        assert node.srun(options).nodes == ["a"]
    assert node.srun("-N1 -n1").nodes == ["a"]
    assert node.srun("-N1 -n1 --overlap").nodes == ["a"]


def test_a_named_node_is_waited_for_however_free_the_others_are(node: Node) -> None:
    first = node.srun(f"{GPUS} -w a")
    node.then = [lambda: node.end(first)]
    assert node.srun(f"{GPUS} -w a").nodes == ["a"]
    assert node.slept


def test_components_that_may_choose_leave_a_named_node_to_the_one_that_named_it(node: Node) -> None:
    node.srun("-N1 -n1 -w a")
    entered = node.srun(f"{GPUS} x : {GPUS} -w b")
    assert entered.gpus == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}


def test_components_that_have_no_room_together_wait_for_it(node: Node) -> None:
    held = node.srun(GPUS)
    node.then = [lambda: node.end(held)]
    entered = node.srun(f"{GPUS} x : {GPUS}")
    assert entered.gpus == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}


def test_a_step_does_not_make_way_for_the_one_it_was_begun_in(node: Node) -> None:
    outer = node.srun("-N1 -n1")
    assert node.srun("-N1 -n1", SLURM_STEP_ID=str(outer.step)).nodes == ["a"]


def test_a_step_begins_where_nothing_can_be_written(node: Node) -> None:
    record = node.step()
    (node.directory / "sruns" / "next").unlink()
    (node.directory / "sruns").rmdir()
    laid = laid_out(parse(["-N1", "-n1", "x"], {}), JOB, [["a"], ["b"]], IDLE)
    entered = devices.enter(node.here, record, Step(), lambda used: laid, {}, node.said.append)
    assert (entered.record.nodes, entered.laid) == (["a"], laid)
