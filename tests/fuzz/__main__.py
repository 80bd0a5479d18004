"""``python -m fuzz``: as many cases as are asked for, on all cores, by a seed that is told; or one case again.

What is found is told once for each fault, with the command that shows it again. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count

from fuzz.histories import EDITED_AFTER, LENGTH, edits, history
from fuzz.judging import FoundError, Tally
from fuzz.reports import REPORTS, reports
from fuzz.specs import SPECS, specs
from fuzz.wide import FAILURES, wide

Fuzzer = Callable[[str, Collection[int] | None], Tally]
_MEMORY = 4 * 2**30
_SMALLER_TRIES = 150
_TOLD_EVERY = 30.0


@dataclass(frozen=True)
class Kind:
    """A fuzzer, how many steps a case of it has, and what is counted of it."""

    run: Callable[..., Tally]
    steps: int
    counts: str


KINDS = {
    "history": Kind(history, LENGTH, "decisions of histories"),
    "edits": Kind(edits, EDITED_AFTER, "edited runs"),
    "specs": Kind(specs, SPECS, "specs"),
    "reports": Kind(reports, REPORTS, "reports"),
    "wide": Kind(wide, FAILURES, "wide gangs"),
}


@dataclass
class Sum:
    """Of all cases."""

    done: Counter[str] = field(default_factory=Counter)
    found: dict[str, tuple[str, str]] = field(default_factory=dict)  # by signature: the case, and words
    times: Counter[str] = field(default_factory=Counter)

    def add(self, case: str, tally: Tally) -> None:
        self.done += tally.done
        self.times += tally.times
        for signature, words in tally.found.items():
            if signature not in self.found:
                self.found[signature] = (case, words)
                print(f"\nFOUND {signature}\n{words}\nagain: make fuzz CASE={case}\n", flush=True)


def run_case(case: str) -> Tally:
    """``KIND:SEED:NUMBER``, or with ``:STEPS`` behind it, those of its steps that are to be taken, as 3,7,11."""
    name, seed, number, *kept = case.split(":")
    steps = [int(step) for step in kept[0].split(",")] if kept else None
    return KINDS[name].run(f"{name}:{seed}:{number}", steps)


def smaller(case: str, signature: str) -> str:
    """The same case with as few steps as show the same fault, as far as that is found in a while."""
    name, *_ = case.split(":")
    steps, tries, size = list(range(KINDS[name].steps)), _SMALLER_TRIES, KINDS[name].steps // 2
    while size:
        for begin in range(0, len(steps), size):
            fewer = steps[:begin] + steps[begin + size :]
            tries -= 1
            if fewer and tries > 0 and signature in run_case(_named(case, fewer)).found:
                steps = fewer
                break
        else:
            size //= 2
    return _named(case, steps)


def _named(case: str, steps: Collection[int]) -> str:
    return f"{':'.join(case.split(':')[:3])}:{','.join(map(str, steps))}"


def _told(case: str) -> tuple[str, Tally]:
    try:
        return case, run_case(case)
    except Exception as error:  # one case must not be the end of a night
        tally = Tally()
        tally.note(FoundError(f"the fuzz itself: {error!r:.80}", traceback.format_exc()))
        return case, tally


def _begin() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _cases(name: str, seed: int) -> Iterator[str]:
    return (f"{name}:{seed}:{number}" for number in count())


def fuzz(wanted: dict[str, int], seed: int, seconds: float, jobs: int) -> Sum:
    """Cases of every kind until as many were looked at as are ``wanted``, or the time is over."""
    found, begun = Sum(), time.monotonic()
    told, cases = begun, {name: _cases(name, seed) for name in wanted}
    sent, back = Counter[str](), Counter[str]()

    def share(name: str) -> float:
        """How much of a kind is done, once what is under way is."""
        done = found.done[KINDS[name].counts]
        return (done + (sent[name] - back[name]) * max(1.0, done / max(1, back[name]))) / wanted[name]

    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        under_way: set[Future[tuple[str, Tally]]] = set()
        while True:
            short = [name for name, least in wanted.items() if found.done[KINDS[name].counts] < least]
            over = time.monotonic() - begun >= seconds
            while short and not over and len(under_way) <= jobs:
                name = min(short, key=share)
                sent[name] += 1
                under_way.add(pool.submit(_told, next(cases[name])))
            if not under_way:
                break
            ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for each in ended:
                case, tally = each.result()
                back[case.partition(":")[0]] += 1
                found.add(case, tally)
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                print(f"{told - begun:6.0f} s  {_in_words(found)}", flush=True)
    return found


def _in_words(found: Sum) -> str:
    return ", ".join(f"{found.done[kind.counts]:,} {kind.counts}" for kind in KINDS.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the same cases again; left out: others each time")
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--edits", type=int, default=200, help="runs whose status is edited in every field")
    parser.add_argument("--specs", type=int, default=100_000)
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--wide", type=int, default=6, help="gangs of thousands")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after so long, however many there were"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", help="only this one, as it was told")
    parser.add_argument("--as-found", action="store_true", help="do not look for fewer steps that show the same")
    asked = parser.parse_args()
    if asked.case:
        tally = run_case(asked.case)
        for signature, words in tally.found.items():
            print(f"FOUND {signature} ({tally.times[signature]} times)\n{words}\n")
        print(", ".join(f"{number:,} {what}" for what, number in sorted(tally.done.items())))
        return 1 if tally.found else 0
    seed = asked.seed if asked.seed is not None else secrets.randbelow(2**31)
    print(f"seed {seed}: make fuzz SEED={seed} has the same cases again", flush=True)
    begun = time.monotonic()
    wanted = {
        "history": asked.decisions,
        "edits": asked.edits,
        "specs": asked.specs,
        "reports": asked.reports,
        "wide": asked.wide,
    }
    found = fuzz({name: count for name, count in wanted.items() if count}, seed, asked.seconds, asked.jobs)
    print(
        f"\nin {time.monotonic() - begun:.0f} s: "
        + ", ".join(f"{n:,} {what}" for what, n in sorted(found.done.items()))
    )
    for signature, (case, words) in found.found.items():
        again = case if asked.as_found else smaller(case, signature)
        print(
            f"\nFOUND {found.times[signature]} times: {signature}\n{words}\nagain: make fuzz CASE={again}", flush=True
        )
    return 1 if found.found else 0


if __name__ == "__main__":
    sys.exit(main())
