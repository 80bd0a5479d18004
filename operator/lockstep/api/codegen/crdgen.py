"""Write crds/*.yaml and docs/api.md from the models: `python -m lockstep.api.codegen.crdgen [--check] [ROOT]`.

The CRDs are written a second time, as templates of the chart. The output is byte-stable; `--check` writes nothing and
fails when a file differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from lockstep.api.base import names
from lockstep.api.codegen import docgen
from lockstep.api.codegen.openapi import structural_schema, unruled_schema, validations
from lockstep.api.codegen.root_rules import root_rules
from lockstep.api.v1alpha1 import KINDS, AnyKind, Column

# `kubectl apply` keeps a copy of the object in an annotation, and annotations end at 262,144 bytes.
MAX_JSON_BYTES = 200_000
HEADER = "# Generated from the models in operator/lockstep/api by `make generate`. Do not edit.\n"


def custom_resource_definition(model: AnyKind) -> dict[str, Any]:
    """Return the CRD of one kind. Raises ValueError when it outgrows plain `kubectl apply`."""
    kind = model.crd
    singular = kind.kind.lower()
    crd: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": singular,
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            },
            "scope": kind.scope,
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_printer_column(column) for column in kind.columns],
                    "selectableFields": [{"jsonPath": path} for path in kind.selectable],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": " ".join((model.__doc__ or "").split()),
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": unruled_schema(kind.spec),
                                # The operator alone writes it: kept per field, the record of who wrote what
                                # would be half of each object.
                                "status": structural_schema(kind.status) | {"x-kubernetes-map-type": "atomic"},
                            },
                        }
                        | validations([*model.cross_field_rules, *root_rules(kind.spec)])
                    },
                }
            ],
        },
    }
    size = len(json.dumps(crd))
    if size >= MAX_JSON_BYTES:
        raise ValueError(f"the CRD of {kind.kind} has {size} bytes of JSON, {MAX_JSON_BYTES} are allowed")
    return crd


def generated_files() -> dict[str, str]:
    """Return every generated file: path from the root of the repository, and text."""
    files = {"docs/api.md": docgen.api_reference(KINDS)}
    for model in KINDS:
        crd = custom_resource_definition(model)
        name = f"{names.GROUP}_{model.crd.plural}.yaml"
        files[f"crds/{name}"] = HEADER + _as_yaml(crd)
        files[f"charts/lockstep/templates/crds/{name}"] = HEADER + _as_template(crd)
    return files


def main(argv: list[str] | None = None) -> int:
    """Write or check the files; the exit code is 1 when a checked file differs."""
    parser = argparse.ArgumentParser(prog="crdgen", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(), metavar="ROOT", help="of the repository")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file differs")
    options = parser.parse_args(argv)
    stale = []
    for path, text in generated_files().items():
        file = options.root / path
        if file.is_file() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not options.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path} is stale: run `make generate`" if options.check else f"wrote {path}")
    return 1 if stale and options.check else 0


def _as_yaml(crd: dict[str, Any]) -> str:
    return yaml.safe_dump(crd, sort_keys=False, width=110, allow_unicode=True)


def _as_template(crd: dict[str, Any]) -> str:
    """The CRD as the chart has it: it stays when a release goes, or every run would go with it."""
    kept = crd | {"metadata": crd["metadata"] | {"annotations": {"helm.sh/resource-policy": "keep"}}}
    return "{{- if .Values.crds.install }}\n" + _as_yaml(kept).replace("{{", '{{ "{{" }}') + "{{- end }}\n"


def _printer_column(column: Column) -> dict[str, Any]:
    written: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        written["description"] = column.description
    if column.wide:
        written["priority"] = 1
    return written


if __name__ == "__main__":
    sys.exit(main())
