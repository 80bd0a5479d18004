"""The worker's command line: ``python3 -I -B worker.pyz -- command of the user``."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from lockstep.worker.agent import Worker
from lockstep.worker.output import log_line
from lockstep.worker.settings import Settings


def main() -> int:
    """Exit code of the container."""
    try:
        return Worker(Settings.from_environment(os.environ, sys.argv[1:])).run()
    except Exception as error:
        log_line(f"cannot start: {error!r}")
        return 125


def start() -> NoReturn:
    """Never returns: threads may hang in a read from a dead file server, and nothing is left to be flushed."""
    os._exit(main())


if __name__ == "__main__":
    start()
