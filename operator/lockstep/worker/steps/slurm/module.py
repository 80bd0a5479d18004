"""The program ``module`` of a batch job: nothing, said once in an attempt."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Sequence

from lockstep.worker.shims import module
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.place import VARIABLE

_SAID = "module-said"


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    return shimmed.print_answer(module.answer(arguments, _said_before(os.environ.get(VARIABLE, ""))))


def _said_before(directory: str) -> bool:
    if not directory:
        return False
    try:
        os.close(os.open(os.path.join(directory, _SAID), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return True
    except OSError:
        return False
    return False


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
