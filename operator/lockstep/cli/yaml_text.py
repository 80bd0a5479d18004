"""YAML that kubectl reads as it was meant."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Quotes what Kubernetes' own reader would take for a number or a truth, and PyYAML, by itself, for text."""


for _tag, _others, _first in (
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),  # --lr 1e-3, --day 08
    ("int", r"[-+]?0[oO]?[0-7_]+", "-+0"),
    ("bool", "[yYnN]", "yYnN"),
):
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_others})$"), list(_first))


def as_yaml(value: Any) -> str:
    """In the order that it has, with a line end."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
