"""docs/faults.md, made from the menu. ``python -m faults.page`` prints it."""

from __future__ import annotations

from faults.menu import DISRUPTIONS, FAULTS, MENU, NOT_SERVED, PHASES, Dish, Fault, Phase

HEAD = """# The fault menu

`make faults-all` breaks real training on purpose: every fault of this page at every moment of a run's life.
`make faults` serves the dishes in **bold**: every fault and every moment at least once (preemption in its harder form),
on two cores in ten minutes; continuous integration runs it. This page is made from `e2e/faults/menu.py`, and a test
holds it to that.

Three ranks train the demo's language model in JAX on four nodes, with a real control plane, the real operator and the
real worker. Whatever happens, the run has to end as the table says, and:

- Every step of every attempt is bit for bit that of a run to which nothing happened: batch and loss, on every rank. No
  step is skipped, none is taken from a state that was not saved.
- `status.attempts` names the rank that was hit, the cause, and the step that it resumed from: the newest valid one.
- Attempts that a disruption ended are charged to nobody.
- A node that comes back after the gang has gone on without it changes no file of the running attempt.
"""
FOOT = """
What a run does about each cause is in [recovery](recovery.md) and
[troubleshooting](troubleshooting.md#statusattempts-causes); what stopping means in [stopping](stopping.md).

A dish that fails prints the run's history, its events and the end of the operator's log, and keeps all there is in
`.build/faults/`. One alone: `.venv/bin/pytest e2e/faults -k kill-save`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Moments\n", *_table(("Moment", ""), [(f"`{p.value}`", PHASES[p]) for p in Phase])]
    parts += ["\n## Faults\n", *_table(("Fault", ""), [(f"`{f.value}`", _about(f)) for f in Fault])]
    parts += ["\n## How each of them ends\n", LEGEND]
    rows = [(f"`{fault.value}`", *(_cell(fault, phase) for phase in Phase)) for fault in Fault]
    parts += _table(("", *(f"`{phase.value}`" for phase in Phase)), rows)
    parts += ["", *(f"{number}. {why}" for number, why in enumerate(_reasons(), 1)), FOOT]
    return "\n".join(parts)


LEGEND = """\
The cause of the attempt that is hit, after which the run goes on and succeeds. *unharmed*: no attempt ends by it; what
is lost before the start is replaced. At `stop` the outcome of the save before it is shown: the run is suspended either
way, and succeeds once it is resumed. So it is at a preemption, after which the run resumes from that save (where a save
of the program's own was the answer: from it or from the one asked for) once the other one has had the nodes; a program
that has not begun its steps is stopped without a save. A number says why something cannot be.
"""


def _about(fault: Fault) -> str:
    return FAULTS[fault] + (" A disruption." if fault in DISRUPTIONS else "")


def _cell(fault: Fault, phase: Phase) -> str:
    dish = next((dish for dish in MENU if (dish.fault, dish.phase) == (fault, phase)), None)
    if dish is None:
        return str(_reasons().index(NOT_SERVED[fault, phase]) + 1)
    return f"**{_outcome(dish)}**" if dish.covering else _outcome(dish)


def _outcome(dish: Dish) -> str:
    if dish.ends != "AllRanksSucceeded":
        return f"fails: `{dish.ends}`"
    words = [f"save {' or '.join(dish.save)}"] if dish.save else []
    words += [" or ".join(f"`{cause}`" for cause in dish.causes)] if dish.causes else []
    return ", then ".join(words) + " or unharmed" * dish.or_unharmed or "unharmed"


def _reasons() -> list[str]:
    return sorted(set(NOT_SERVED.values()))


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [header, ("---",) * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


if __name__ == "__main__":
    print(page(), end="")
