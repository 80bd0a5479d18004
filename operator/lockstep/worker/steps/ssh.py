"""The program ``ssh`` of a gang: its nodes are reached as steps, without keys, names or a server in the image."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Sequence

from lockstep.worker.shims import ssh
from lockstep.worker.shims.request import ShimAnswer
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    command = ssh.parse(arguments)
    if isinstance(command, ShimAnswer):
        return shimmed.print_answer(command)
    try:
        at = shimmed.here(os.environ)
        asked = ssh.request(command, at.targets)
        if isinstance(asked, ShimAnswer):
            return shimmed.print_answer(asked)
        (outcome,) = shimmed.run(asked, at).values()
    except (CredentialError, OSError) as error:
        shimmed.say(f"ssh: {error}\n")
        return ssh.FAILED
    if outcome.words:
        shimmed.say(ssh.unreachable(command.host, outcome.words))
    return ssh.exit_code(None if outcome.signal else outcome.code)


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
