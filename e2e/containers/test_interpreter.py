"""tests/unit on the interpreter that is shipped: `make test` runs them on this machine's, which may be another."""

from __future__ import annotations

import os
import subprocess

import pytest

from kindcluster import images
from kindcluster.cluster import KindCluster
from localcluster.build import REPOSITORY

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # two processors for minutes
QUICK = ("-m", "not process and not slow", "--hypothesis-profile=quick", "-p", "no:cacheprovider")

ABOUT_THE_REPOSITORY = "tests/unit/repository"
"""Some of them ask git and make, which the image does not have."""


def test_the_quick_unit_tests_pass_on_the_interpreter_and_libraries_of_the_image(kind: KindCluster) -> None:
    image = images.tests(kind.docker, images.base(kind.docker, kind.folder, print), print)
    alone = ["docker", "run", "--rm", "--network=none", "--workdir=/source", f"--volume={REPOSITORY}:/source:ro"]
    left_out = f"--ignore={ABOUT_THE_REPOSITORY}"
    tests = ["python3", "-m", "pytest", "tests/unit", *QUICK, left_out, "--numprocesses=2", "--quiet"]
    environment = {**os.environ, **kind.docker.environment}
    ran = subprocess.run([*alone, image, *tests], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert " passed" in ran.stdout
