"""The launch benchmark ends with its figures and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
ROOT = Path(__file__).resolve().parents[2]


def test_the_benchmark_ends_with_one_line_of_json() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bench.launch", "--nodes=4", "--rounds=1"],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'e2e'}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(ended.stdout.splitlines()[-1])
    assert (figures.pop("bench"), figures.pop("nodes")) == ("launch", 4)
    wanted = {"floor_s", "running_s", "ratio", "started_s", "api_requests_per_pod", "operator_cpu_s", "rss_mb"}
    assert figures.keys() == wanted
    assert all(value > 0 for value in figures.values())
