"""The operator's process: its command line, its signals and its exit codes."""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys

import uvloop

from lockstep.config import ConfigError, load
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.operator import Operator
from lockstep.controller.runtime.logs import configure_logging

log = logging.getLogger("lockstep.main")

COLLECTED_AFTER = 20_000
"""More objects than were there at the last garbage collection. A gang is thousands of objects, few of which go in
circles: with Python's own 700 the collector walks the store again and again while runs are admitted, and finds little.
"""


async def _run_until_signalled(operator: Operator) -> int:
    loop = asyncio.get_running_loop()
    main = asyncio.ensure_future(operator.run())

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, main.cancel)

    take_signals()
    operator.take_signals = take_signals
    try:
        await main
    except asyncio.CancelledError:
        return 0
    except BaseExceptionGroup as group:
        lost, rest = group.split(LostLeadershipError)
        if lost is not None:
            # Whatever this process still has in hand must not reach the API server.
            log.error("leadership is lost: this process ends")
            os._exit(3)
        raise rest if rest is not None else group from None
    return 1


def main() -> None:
    """Entry point of ``lockstep-operator``."""
    parser = argparse.ArgumentParser(prog="lockstep-operator", description="Runs LLM training on Kubernetes as gangs.")
    parser.add_argument("--config", help="YAML file; see docs/configuration.md")
    parser.add_argument("--kubeconfig", help="kubeconfig file; the pod's service account when left out")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    arguments = parser.parse_args()
    configure_logging(arguments.log_level)
    kubeconfig = arguments.kubeconfig or os.environ.get("KUBECONFIG") or None
    try:
        operator = Operator(load(arguments.config), kubeconfig, arguments.config)
    except ConfigError as error:
        sys.exit(f"lockstep-operator: {error}")
    gc.set_threshold(COLLECTED_AFTER)
    gc.freeze()  # modules and models stay for ever: the collector need not walk them again with each gang
    sys.exit(uvloop.run(_run_until_signalled(operator)))


if __name__ == "__main__":
    main()
