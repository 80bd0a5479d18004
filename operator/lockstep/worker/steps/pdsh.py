"""The program ``pdsh`` of a gang, as DeepSpeed calls it: one step on all the hosts that it names."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Sequence

from lockstep.worker.shims import pdsh
from lockstep.worker.shims.request import ShimAnswer
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError

_MOST = 1 << 20  # bytes of a file of hosts


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    try:
        at = shimmed.here(os.environ)
        command = pdsh.parse(arguments, os.environ, at.targets, os.environ.get("USER", ""), _text_of)
        if isinstance(command, ShimAnswer):
            return shimmed.print_answer(command)
        asked, lines = pdsh.request(command, at.targets)
        shimmed.say(lines)
        outcomes = shimmed.run(asked, at, command.timeout) if asked.parts else {}
    except (CredentialError, OSError) as error:
        shimmed.say(f"pdsh@lockstep: {error}\n")
        return 1
    shimmed.say([f"{command.hosts[task]}: {each.words}" for task, each in sorted(outcomes.items()) if each.words])
    codes = {task: each.exit_code for task, each in outcomes.items()}
    shimmed.say([pdsh.exit_line(command.hosts[task], code) for task, code in sorted(codes.items()) if code])
    return pdsh.exit_code(command, [*codes.values(), *[255] * (len(lines) // 2)])


def _text_of(name: str) -> str:
    """Raises OSError."""
    if name == "-":
        return sys.stdin.read(_MOST)
    with open(name) as stream:
        return stream.read(_MOST)


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
