"""Helm, built from its Go module, and the chart of this repository."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from localcluster import build

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "lockstep"
VALUES = sorted((ROOT / "tests" / "chart" / "values").glob("*.yaml"))
NAMESPACE = "lockstep-system"


class StrictLoader(yaml.CSafeLoader):
    """Refuses a key that is there twice, of which other readers take one, and takes for text only what all do."""

    bool_values: ClassVar[dict[str, bool]] = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in found:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", key_node.start_mark)
            found[key] = self.construct_object(value_node, deep=deep)
        return found


# Where YAML 1.2 and Kubernetes' own reader see numbers and truths that PyYAML takes for text.
for _tag, _others, _first in (
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+", "-+.0123456789"),
    ("int", r"[-+]?0o[0-7]+", "-+0"),
    ("bool", "[yYnN]", "yYnN"),
):
    StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_others})$"), list(_first))


class HelmError(Exception):
    """What helm said when it refused."""


@dataclass(frozen=True)
class Helm:
    """helm with nothing of the user's: its folders are in ``home``."""

    home: Path
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str | Path) -> str:
        """Run it; its standard output. Raises HelmError."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        if self.kubeconfig is not None:
            environment["KUBECONFIG"] = str(self.kubeconfig)
        command = [str(build.binary("helm")), *map(str, arguments)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if answer.returncode != 0:
            raise HelmError(answer.stderr)
        return answer.stdout

    def template(self, *arguments: str | Path, namespace: str = NAMESPACE) -> str:
        """The chart's objects as text. Raises HelmError."""
        return self("template", "lockstep", CHART, "--namespace", namespace, *arguments)

    def objects(self, *arguments: str | Path, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """The chart's objects, without the CRDs, which take long to read. Raises HelmError."""
        return parsed(self.template(*arguments, "--set", "crds.install=false", namespace=namespace))


def parsed(text: str) -> list[dict[str, Any]]:
    """The objects in a text. Raises YAMLError, also for what not every reader reads alike."""
    return [found for found in yaml.load_all(text, StrictLoader) if found]


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one object of its kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found
