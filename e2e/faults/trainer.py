"""The demo's training in JAX, with moments at which something may go wrong (see ``faults.moments``).

It saves every few steps and whenever it is asked to, ends when it is told to, and is bit for bit the demo's training
in everything that it learns.
"""

import argparse
import ctypes
import hashlib
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lockstep_training as lockstep

from demo import train_lm
from faults import moments
from faults.moments import Moment

LONGEST_WAIT = 300.0
JOIN_SECONDS = 45.0


class Moments:
    """The plan for this rank."""

    def __init__(self, plan: list[Moment], rank: int, run_folder: Path) -> None:
        self._plan = [moment for moment in plan if moment.rank == rank]
        self._folder = run_folder

    def reach(self, point: str, step: int = 0, *, asked: bool = False) -> bool:
        """Do what is due here. True: what this rank has learnt is to be spoilt."""
        spoilt = False
        for moment in self._plan:
            here = moment.point == point and moment.step in (None, step) and moment.asked == asked
            if here and (moment.always or self._is_first(moment)):
                spoilt |= self._do(moment, step)
        return spoilt

    def _is_first(self, moment: Moment) -> bool:
        try:
            moment.marker(self._folder).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _do(self, moment: Moment, step: int) -> bool:
        print(f"{moment.name}: {moment.deed} at {moment.point} {step}", file=sys.stderr, flush=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if moment.deed == moments.POISON:
            return True
        if moment.deed == moments.SEGFAULT:
            ctypes.string_at(0)
        elif moment.deed == moments.ABORT:
            os.abort()
        elif moment.deed == moments.ERROR:
            raise RuntimeError(f"the fault menu wants an error, as {moment.name}")
        elif moment.deed == moments.MISTAKE:
            raise ValueError("this batch has the wrong shape")
        elif moment.deed.startswith("exit:"):
            os._exit(int(moment.deed.partition(":")[2]))
        self._wait(moment)
        return False

    def _wait(self, moment: Moment) -> None:
        end = time.monotonic() + LONGEST_WAIT
        while not moment.permit(self._folder).exists() and time.monotonic() < end:
            time.sleep(0.05)


def spoil(trainer: train_lm.Trainer) -> None:
    """What a bad memory module may do to one rank's copy."""
    trainer.restore(np.full(trainer.state.shape, np.nan, np.float32))


def save(trainer: train_lm.Trainer, folder: Path, step: int, plan: Moments, *, asked: bool) -> None:
    (folder / f"step-{step}").mkdir(exist_ok=True)
    if plan.reach(moments.SAVE, step, asked=asked):
        spoil(trainer)
    train_lm.save(trainer, folder, step, shared=True)
    plan.reach(moments.SAVED, step, asked=asked)


def train(args: argparse.Namespace, plan: Moments) -> None:
    """From the resume point to the last step, or until told to stop."""
    trainer = train_lm.Trainer(args)
    corpus = np.frombuffer(args.corpus.read_bytes(), np.uint8)
    folder = Path(os.environ["LOCKSTEP_CHECKPOINT_DIR"])
    resume, done = lockstep.resume_path(), 0
    spoilt = plan.reach(moments.RESTORE if resume else moments.FRESH)
    if resume:
        train_lm.load(trainer, Path(resume))
        done = int(os.environ["LOCKSTEP_RESUME_STEP"])
    if spoilt:
        spoil(trainer)
    lineage = train_lm.open_for_append(folder / f"lineage-rank{trainer.rank}.jsonl")
    assert lineage is not None
    for step in range(done + 1, args.steps + 1):
        tokens = train_lm.batch_of(corpus, args, step, trainer.rank)
        loss = trainer.advance(step, tokens)
        batch_hash = hashlib.sha256(tokens.tobytes()).hexdigest()[:16]
        lineage.write(json.dumps({"step": step, "batch_hash": batch_hash, "loss": repr(loss)}) + "\n")
        lockstep.report(step, loss, args.steps)
        if plan.reach(moments.STEP, step):
            spoil(trainer)
        time.sleep(args.step_delay)
        asked = lockstep.should_checkpoint(step)
        if asked or step % args.save_every == 0 or step == args.steps:
            stopping = asked and lockstep.should_stop()
            with lockstep.saving(step):
                save(trainer, folder, step, plan, asked=stopping)
            if stopping:
                return


def main() -> None:
    args = train_lm.parse(sys.argv[1:])
    folder = Path(os.environ["LOCKSTEP_CHECKPOINT_DIR"]).parent
    plan = Moments(moments.decoded(os.environ.get(moments.PLAN, "")), int(os.environ["JAX_PROCESS_ID"]), folder)
    try:
        plan.reach(moments.START)
        train_lm.join_gang(os.environ, patience=JOIN_SECONDS)
        train(args, plan)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    train_lm.leave_gang()


if __name__ == "__main__":
    main()
