"""Writes what is made from the chart and from its values: `python charts/generate.py [--check]`.

From the version in operator/lockstep/__init__.py: the chart's, and the image's tag on pages that show how to get it.
From values.py: values.yaml, values.schema.json, and the tables of the chart's README. From dashboards/*.yaml: Grafana's
JSON. From the chart itself, by `helm template`: manifests/install.yaml, operator.yaml and operator-*.yaml.
`--check` writes nothing and fails when a file differs; the manifests are then left to tests/chart where helm is not
built.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from dashboards import made_dashboards
from manifests import (
    install_manifest,
    kueue_manifest,
    look_up_manifest,
    operator_manifest,
    pod_groups_manifest,
    scale_up_manifest,
)
from pydantic import BaseModel
from values import CHART_OWNED, Section, Values

from localcluster import build
from lockstep import __version__
from lockstep.config import OperatorConfig

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "lockstep"
HEADER = "# Generated from charts/values.py by `make generate`. Do not edit; set your own in a file of yours.\n"
WIDTH = 110
_TAG = r"(?<=lockstep-operator:)\d+\.\d+\.\d+(?!-)\b"


def values_yaml() -> str:
    """Every value with its default and what it is for."""
    return HEADER + "\n".join(_commented(Values, "")) + "\n"


def _commented(section: type[BaseModel], indent: str) -> Iterator[str]:
    for name, default, comment, field in _fields(section):
        if not indent:
            yield ""
        yield from textwrap.wrap(comment, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if isinstance(default, Section):
            yield f"{indent}{name}:"
            yield from _commented(type(default), indent + "  ")
            continue
        yield from textwrap.indent(_as_yaml({name: default}), indent).splitlines()
        for example in field.examples or ():
            yield from textwrap.indent(_as_yaml({name: example}), f"{indent}# ").splitlines()


def _fields(section: type[BaseModel]) -> Iterator[tuple[str, Any, str, Any]]:
    """Name, default, comment and field. A section that a field holds explains it where the field does not."""
    for field in section.model_fields.values():
        default = field.default
        words = field.description or (type(default).__doc__ if isinstance(default, Section) else "")
        yield str(field.alias), default, " ".join((words or "").split()), field


def _as_yaml(entry: dict[str, Any]) -> str:
    """One entry: short mappings and lists in one line, as people write them."""
    (value,) = entry.values()
    flow = None if isinstance(value, dict | list) and value else False
    return yaml.safe_dump(entry, sort_keys=False, default_flow_style=flow, width=WIDTH, allow_unicode=True)


def values_schema() -> dict[str, Any]:
    """JSON Schema of the values; `config` is that of the operator's own model."""
    schema = Values.model_json_schema(by_alias=True)
    operator = _operator_schema()
    operator["properties"] = {k: v for k, v in operator["properties"].items() if k not in CHART_OWNED}
    definitions = schema["$defs"] | operator.pop("$defs")
    schema["properties"]["config"] |= operator | {"description": schema["properties"]["config"]["description"]}
    schema["required"] = [*_must_be_there(Values), "config"]
    for _, section, _, _ in _fields(Values):
        if isinstance(section, Section):
            definitions[type(section).__name__]["required"] = _must_be_there(type(section))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _plain(schema | {"$defs": definitions})


def _must_be_there(section: type[BaseModel]) -> list[str]:
    """What is left empty in a values file is null, which Helm takes for: without the default either. That is well where
    the default is nothing, and for mappings of Kubernetes' own, such as limits."""
    return [
        name
        for name, default, _, _ in _fields(section)
        if isinstance(default, Section | bool) or (default and not isinstance(default, dict))
    ]


def _operator_schema() -> dict[str, Any]:
    """As people write it, a moment as text; what may be left out is what the operator has a default for."""
    written = OperatorConfig.model_json_schema(by_alias=True, mode="serialization")
    read = OperatorConfig.model_json_schema(by_alias=True)
    for name, definition in {"": written, **written["$defs"]}.items():
        definition["required"] = (read["$defs"][name] if name else read).get("required", [])
    return written


def _plain(node: Any) -> Any:
    """Without the titles and examples that say nothing to a reader of an error."""
    if isinstance(node, dict):
        dull = {"title", "examples"} if isinstance(node.get("title"), str) else {"examples"}
        return {key: _plain(value) for key, value in node.items() if key not in dull}
    return [_plain(item) for item in node] if isinstance(node, list) else node


def values_table() -> str:
    """Every value as rows of Markdown."""
    return "\n".join(["| Value | Default | |", "|---|---|---|", *_rows(Values, "")])


def _rows(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, default, comment, _ in _fields(section):
        if isinstance(default, Section):
            yield f"| `{prefix}{name}` | | {comment} |"
            yield from _rows(type(default), f"{prefix}{name}.")
        else:
            yield f"| `{prefix}{name}` | `{json.dumps(default)}` | {comment} |"


def with_table(page: str) -> str:
    """The README with its table made anew."""
    return re.sub(r"(<!-- values -->\n).*?(<!-- end -->)", rf"\g<1>{_escaped(values_table())}\n\2", page, flags=re.S)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\")


def made_from_version() -> dict[Path, str]:
    """Files that show the project's version, and their texts with the one there is."""
    shown = {CHART / "Chart.yaml": r"(?m)(?<=^version: ).*|(?<=^appVersion: ).*"}
    shown |= dict.fromkeys([ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], _TAG)
    return {path: re.sub(old, __version__, path.read_text(encoding="utf-8")) for path, old in shown.items()}


def made_from_values() -> dict[Path, str]:
    """Files of the chart, and their texts."""
    readme = CHART / "README.md"
    return {
        CHART / "values.yaml": values_yaml(),
        CHART / "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        readme: with_table(readme.read_text(encoding="utf-8")),
        **{CHART / "files" / "dashboards" / name: text for name, text in made_dashboards().items()},
    }


def made_from_chart(helm: Path) -> dict[Path, str]:
    """Manifests, and their texts."""
    return {
        ROOT / "manifests" / "operator.yaml": operator_manifest(helm, CHART),
        ROOT / "manifests" / "install.yaml": install_manifest(helm, CHART),
        ROOT / "manifests" / "operator-kueue.yaml": kueue_manifest(helm, CHART),
        ROOT / "manifests" / "operator-pod-groups.yaml": pod_groups_manifest(helm, CHART),
        ROOT / "manifests" / "operator-scale-up.yaml": scale_up_manifest(helm, CHART),
        ROOT / "manifests" / "operator-look-up.yaml": look_up_manifest(helm, CHART),
    }


def brought_up_to_date(files: Mapping[Path, str], check: bool) -> int:
    """Write what differs, or only say so; the number of files that did."""
    stale = {path: text for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        name = path.relative_to(ROOT)
        print(f"{name} is stale: run `make generate`" if check else f"wrote {name}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return len(stale)


def main() -> int:
    """Write, or with --check say what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file differs")
    check = parser.parse_args().check
    stale = brought_up_to_date(made_from_version() | made_from_values(), check)
    if not check:
        build.build_all(names=["helm"])
    if build.is_current(build.program("helm")):
        stale += brought_up_to_date(made_from_chart(build.binary("helm")), check)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
