"""Lives of a few runs on a few nodes, in which anything happens at any time, and snapshots of them with lies in them.

A history is a list of steps, each with random numbers of its own, so that one with fewer steps is a history too: that
is how a case is made smaller.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import replace
from random import Random

from fuzz import edited_runs
from fuzz.judging import FoundError, Judge, Tally, difference
from fuzz.steps import STEPS
from fuzz.world import FuzzedWorld, arrive, as_booked, new_world

LENGTH = 40
"""Steps of a history."""
EDITED_AFTER = 16
MUTANTS = 12
"""Snapshots with lies in them for each step of a history."""


def edits(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """A short history, and then decisions for a status that was edited in every field that there is, one each."""
    tally = tally or Tally()
    world = new_world(Random(f"{case}/world"), Judge(tally))
    tally.done["edited runs"] += 1
    for number in range(EDITED_AFTER):
        rng = Random(f"{case}/{number}")
        world.rng = rng
        _, step = rng.choice(STEPS)
        if world.runs and (steps is None or number in steps):
            try:
                step(world, rng)
            except Exception:
                return tally  # that is for histories to find
    rng = Random(f"{case}/edits")
    for name in [*world.runs]:
        known = world.snapshot(name)
        for run in edited_runs.statuses(rng, known.run, world.now):
            snapshot = replace(known, run=run)
            try:
                if rng.random() < 0.1:
                    world.judge.at_rest(snapshot, world.tunables, world.now)
                elif rng.random() < 0.1:
                    world.judge.without_deciding(snapshot, world.tunables, world.now)
                else:
                    world.judge.decided(snapshot, world.tunables, world.now)
                if rng.random() < 0.1:
                    run = as_booked(run)
                    others = tuple(run if each.name == name else each for each in world.runs.values())
                    cluster = replace(world.cluster_snapshot(), runs=others)
                    world.judge.admitted(cluster, world.tunables, world.now)
            except FoundError as error:
                tally.note(error, f"edited: {difference(known.run.status, run.status)}")
    return tally


def history(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """Live through one, or through those of its ``steps`` alone. What is found is in the tally."""
    tally = tally or Tally()
    _live(case, steps, tally)
    tally.done["histories"] += 1
    tally.done["decisions of histories"] = tally.done["decisions"]
    return tally


def _live(case: str, steps: Collection[int] | None, tally: Tally) -> None:
    world = new_world(Random(f"{case}/world"), Judge(tally))
    world.leaves = tally.note
    for number in range(LENGTH):
        if steps is not None and number not in steps:
            continue
        rng = Random(f"{case}/{number}")
        world.rng = rng
        name, step = rng.choice(STEPS)
        try:
            if not world.runs:
                arrive(world, rng, "one")
            step(world, rng)
            if world.runs:
                for _ in range(MUTANTS):
                    world.mutate(rng.choice([*world.runs]), rng)
        except FoundError as error:
            tally.note(error, f"at {name}")
            return  # nothing can be decided for it, or only what nobody would carry out
        except Exception as error:
            if not world.spoiled:  # else the world is not as the double takes for granted
                words = "".join(traceback.format_exception(error)[-4:])
                tally.note(FoundError(f"the double: {error!s:.80}", words), f"at {name}")
            return
    _rest(world, tally)


def _rest(world: FuzzedWorld, tally: Tally) -> None:
    """Nothing happens any more, and workers go on saying what they said: nothing much is written."""
    for name in world.runs:
        try:
            world.judge.at_rest(world.snapshot(name), world.tunables, world.now)
        except FoundError as error:
            tally.note(error, "left alone")
