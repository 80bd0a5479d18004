"""A gang that is launched while everything is slow: it starts all the same, nobody is replaced, the lease is held.

On one control plane, by one operator, behind a proxy:
  calm_s    a TrainingRun is applied; until the last of its simulated workers was told START
  loaded_s  another one of the same size, while --busy processes do nothing but compute on the same cores, and the proxy
            lets every request of the operator wait for --takes seconds
The API server itself and the scheduler share the cores with all of it. Beside these stand what the
operator measured meanwhile (the most of each: lag_loop_s, lag_api_server_s, lag_scheduler_s), by how much deadlines
were later for it (allowance_s), and whether it told that all is slow (told_slow). It has failed if the launch under
load took another attempt, gave its nodes back or replaced a pod or node, or if the operator lost its lease. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import uvloop

from bench import sizes
from bench.launcher import Launch, Launcher
from harness import world
from harness.kube import create_namespace
from harness.proxy import ApiProxy
from harness.waiting import WaitedInVain
from harness.world import World
from localcluster.control_plane import SETTINGS
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch
from lockstep.core.model.reasons import ConditionReason

NAMESPACE = "bench"
_NODES_PER_RACK = 16
_LOOK_EVERY = 2.0
_FIRST = 10
"""Levels of priority."""
_FULL = {"nodes": 1_024}
_PARTS = {"loop": "lag_loop_s", "api-server": "lag_api_server_s", "scheduler": "lag_scheduler_s"}
_BUSY = [sys.executable, "-I", "-S", "-c", "while True: pass"]
Json = dict[str, Any]


class Overload:
    """All cores are busy, and the API server answers late; what the operator says of it is looked at now and then."""

    def __init__(self, here: World, proxy: ApiProxy, busy: int, takes: float, after: int) -> None:
        self.most = dict.fromkeys((*_PARTS.values(), "allowance_s"), 0.0)
        self._here = here
        self._proxy = proxy
        self._busy = busy
        self._takes = takes
        self._after = after
        self._over = threading.Event()

    @contextlib.contextmanager
    def lasts(self) -> Iterator[None]:
        """For as long as this is entered."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._proxy.slow_down, 0.0)
            self._proxy.slow_down(self._takes)
            for _ in range(self._busy):
                process = stack.enter_context(subprocess.Popen(["nice", "-n", str(self._after), *_BUSY]))
                stack.callback(process.kill)
            looking = threading.Thread(target=self._look, name="lag")
            looking.start()
            stack.callback(looking.join)
            stack.callback(self._over.set)
            yield

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY):
            with contextlib.suppress(OSError):  # it is slow, or starts anew
                found = self._here.operator.metrics()
                told = {_PARTS[dict(labels)["part"]]: value for labels, value in found["lockstep_lag_seconds"].items()}
                told["allowance_s"] = sum(found["lockstep_lag_allowance_seconds"].values())
                for name, seconds in told.items():
                    self.most[name] = max(self.most[name], round(seconds, 2))


def measure(here: World, options: argparse.Namespace) -> Json:
    """One launch in peace, one under load; what was seen. Raises TimeoutError."""
    proxy = here.proxy
    assert proxy is not None
    after = _go_first()
    create_namespace(here.kubectl, NAMESPACE)
    launcher = Launcher(here, NAMESPACE, options.nodes, options.patience)
    calm = uvloop.run(launcher.launch(with_workers=True))
    _say(f"calm: started {calm.started:.1f} s after the apply; {_load()}")
    held = here.lease()
    overload = Overload(here, proxy, options.busy, options.takes, after)
    written = len(proxy.writes)
    try:
        loaded = uvloop.run(launcher.launch(with_workers=True, meanwhile=overload.lasts()))
    except TimeoutError:
        _say(f"it did not start within {options.patience:g} s: {_seen(here)}")
        raise
    _say(f"loaded: started {loaded.started:.1f} s after the apply; {_load()}")
    words = [json.dumps(write.body) for write in proxy.writes[written:] if _is_status(write.path)]
    figures = {
        "calm_s": round(calm.started, 2),
        "loaded_s": round(loaded.started, 2),
        "times": round(loaded.started / calm.started, 1),
        **_of_the_run(loaded),
        "leases_lost": held.lost_until(here.lease()),
        **overload.most,
        "told_slow": any(str(ConditionReason.CLUSTER_SLOW) in each for each in words),
    }
    if broken(figures):
        log = here.operator.log.read_text(errors="replace").splitlines()
        _say("\n".join(line[:500] for line in log if "deleted pod" not in line)[-8000:])
    return figures


def broken(figures: Mapping[str, Any]) -> list[str]:
    """What was not as it is to be."""
    wanted = {"attempt": 1, "replaced": 0, "requeues": 0, "leases_lost": 0}
    return [f"{name} is {figures[name]}, not {value}" for name, value in wanted.items() if figures[name] != value]


def _of_the_run(launch: Launch) -> Json:
    status = launch.run.status
    replaced = status.totals.nodes_replaced + status.totals.pods_replaced
    return {"attempt": status.attempt, "replaced": replaced, "requeues": status.recovery.requeues}


def _go_first() -> int:
    """This process has the proxy, and its child plays the workers: both stand for other machines. By how much."""
    try:
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -_FIRST)
    except PermissionError:
        _say("setting: no right to let the proxy and the simulated workers, which stand for other machines, go first")
        return 0
    _say("setting: the proxy and the simulated workers, which stand for other machines, go before the operator")
    return _FIRST


def _is_status(path: str) -> bool:
    return path.endswith("/status") and "/trainingruns/" in path


def _seen(here: World) -> str:
    """Of what has not started in time."""
    run = here.kubectl.json("get", "trun", "-n", NAMESPACE)["items"]
    return json.dumps([each.get("status", {}).get("conditions") for each in run])[:2000]


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.overload", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=256, help="of the gang and of the cluster (default: 256)")
    parser.add_argument("--busy", type=int, default=20, help="processes that only compute (default: 20)")
    parser.add_argument("--takes", type=float, default=1.0, help="seconds that each request waits (default: 1)")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for each launch (default: 900)")
    options, size = sizes.parsed(parser, _FULL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    nodes = NodeBatch(count=options.nodes, racks=-(-options.nodes // _NODES_PER_RACK))
    try:
        with world.started(kwok=nodes, proxied=True, report=_say) as here:
            for setting in SETTINGS:
                _say(f"setting: {setting}")
            figures = measure(here, options)
    except (LocalClusterError, WaitedInVain, TimeoutError) as error:
        _say(f"error: {str(error) or type(error).__name__}")
        return 1
    shape = {"bench": "overload", "size": size, "nodes": options.nodes, "busy": options.busy, "takes_s": options.takes}
    failed = broken(figures)
    print(json.dumps(shape | figures | {"failed": failed}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
