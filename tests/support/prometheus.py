"""A Prometheus of this machine, with the chart's rules, that scrapes what it is pointed at."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from harness.waiting import wait_for
from localcluster import build, processes
from localcluster.state import LOOPBACK, component_environment, free_ports
from support.helm import CHART

RULES = [CHART / "files" / "alerts.yaml", CHART / "files" / "gpus.yaml"]
EVERY = "1s"
"""Scrapes and evaluations: tests are in a hurry."""
_ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    url: str
    log: Path

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, targets: Mapping[str, str]) -> Iterator[Prometheus]:
        """``targets``: the URL of each job. It is ready, and gone at the end."""
        build.build_all(names=("prometheus",))
        jobs = [
            {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [urlsplit(url).netloc]}]}
            for job, url in targets.items()
        ]
        config = folder / "prometheus.yaml"
        every = {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY}
        rules = {"rule_files": [str(path) for path in RULES]}
        config.write_text(yaml.safe_dump({"global": every, "scrape_configs": jobs, **rules}))
        address, log = f"{LOOPBACK}:{free_ports(('prometheus',))['prometheus']}", folder / "prometheus.log"
        flags = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}")
        process = processes.spawn([str(build.binary("prometheus")), *flags], log, component_environment())
        try:
            prometheus = cls(f"http://{address}", log)
            wait_for("Prometheus is ready", prometheus._is_ready, seconds=60, last_seen=prometheus.log_tail)
            yield prometheus
        finally:
            processes.end([process], grace=10)

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API. Raises AssertionError with its words when it refuses."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters or path}: {error.read().decode()}") from error

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an expression as it is now."""
        result: list[dict[str, Any]] = self.ask("query", query=expr)["result"]
        return result

    def value(self, expr: str) -> float | None:
        """The one sample that an expression gives; None where there is none."""
        found = self.query(expr)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def log_tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:]) if self.log.exists() else "no log"

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=_ANSWER_SECONDS):
                return True
        except OSError:
            return False
