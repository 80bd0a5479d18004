"""Whether a container's environment holds secrets that its program might print.

The worker hides the values of such variables before it tells the operator anything (``worker/secrets.py``, which says
what a secret is; a test holds the two alike). Where there is no worker, the log must not be told at all.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.core.pods.pod_template import section

SHORTEST = 8
"""Characters; shorter values are words that stand everywhere."""
NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|AUTH|COOKIE|WEBHOOK|CONNECTION_?STRING|(API|ACCESS)_?KEY"
    r"|KEY$|PASS$|_PWD$|_DSN$",
    re.IGNORECASE,
)
_NAMED_PATH = re.compile(r"(FILE|PATH|DIR|SOCK|CREDENTIALS)$", re.IGNORECASE)
_PATH = re.compile(
    r"/(app|data|dev|etc|home|mnt|opt|proc|root|run|secrets?|srv|tmp|usr|var|vault|workspace)/|/.*\.\w{1,6}$"
)


def holds_secrets(container: Mapping[str, Any]) -> bool:
    """Whether a value comes from a Secret, or is one by the name of its variable. What the image sets is not known."""
    if any(source.get("secretRef") for source in container.get("envFrom") or ()):
        return True
    return any(map(_is_of_a_secret, _variables(container)))


def is_secret(name: str, value: str) -> bool:
    """Whether the worker would hide it."""
    is_path = value.startswith("/") and (_NAMED_PATH.search(name) or _PATH.match(value))
    return len(value) >= SHORTEST and NAME.search(name) is not None and not is_path


def _variables(container: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    variables: list[Mapping[str, Any]] = container.get("env") or []
    return [each for each in variables if not each["name"].startswith("LOCKSTEP_")]


def _is_of_a_secret(variable: Mapping[str, Any]) -> bool:
    source = section(variable, "valueFrom")
    if source.get("secretKeyRef"):
        return True
    if source.get("configMapKeyRef"):  # whose value nobody has read
        return NAME.search(variable["name"]) is not None
    return is_secret(variable["name"], str(variable.get("value") or ""))
