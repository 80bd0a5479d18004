"""Values that are secrets by the name of their variable: what the training says is shown to more people than it is."""

from __future__ import annotations

import re
from typing import Mapping, Tuple

from lockstep.worker.settings import JSON

HIDDEN = "[hidden]"
SHORTEST = 8  # characters; shorter ones are words that stand everywhere
_SHORTEST_PART = 4  # of one that was cut: fewer are told, and tell nothing
SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|AUTH|COOKIE|WEBHOOK|CONNECTION_?STRING|(API|ACCESS)_?KEY"
    r"|KEY$|PASS$|_PWD$|_DSN$",
    re.IGNORECASE,
)
"""Names of variables and options whose values are taken for secrets."""
_NAMED_PATH = re.compile(r"(FILE|PATH|DIR|SOCK|CREDENTIALS)$", re.IGNORECASE)
_PATH = re.compile(
    r"/(app|data|dev|etc|home|mnt|opt|proc|root|run|secrets?|srv|tmp|usr|var|vault|workspace)/|/.*\.\w{1,6}$"
)


def secret_values(environment: Mapping[str, str]) -> Tuple[str, ...]:
    """Those that are not to be told, longest first: one may be a part of another."""
    named = {name: value for name, value in environment.items() if SECRET_NAME.search(name)}
    found = {value for name, value in named.items() if len(value) >= SHORTEST and not _is_path(name, value)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _is_path(name: str, value: str) -> bool:
    """A path to a secret is none, and a cause that cannot be read helps nobody. Many a key starts with a slash, too."""
    return value.startswith("/") and bool(_NAMED_PATH.search(name) or _PATH.match(value))


def without_secrets(report: JSON, secrets: Tuple[str, ...]) -> JSON:
    """The report with its prose cleaned; the same one where nothing is secret. What steers is left as it is."""
    if not secrets:
        return report

    def clean(text: str) -> str:
        text = _without_cut_ones(text, secrets)
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    cleaned = dict(report)
    if cleaned.get("exit"):
        cleaned["exit"] = dict(cleaned["exit"], stderrTail=clean(cleaned["exit"]["stderrTail"]))
    if cleaned.get("stacks"):
        cleaned["stacks"] = dict(cleaned["stacks"], text=clean(cleaned["stacks"]["text"]))
    if cleaned.get("signs"):
        cleaned["signs"] = [dict(sign, text=clean(sign["text"])) for sign in cleaned["signs"]]
    if cleaned.get("stepEnds"):
        cleaned["stepEnds"] = [dict(row, stderrTail=clean(row["stderrTail"])) for row in cleaned["stepEnds"]]
    if cleaned.get("problem"):
        cleaned["problem"] = clean(cleaned["problem"])
    return cleaned


def _without_cut_ones(text: str, secrets: Tuple[str, ...]) -> str:
    """Texts are cut to their length before: of a secret at an end of one a part may be left."""
    first = max((_overlap(secret, text) for secret in secrets), default=0)
    if first:
        text = HIDDEN + text[first:]
    last = max((_overlap(text, secret) for secret in secrets), default=0)
    return text[: len(text) - last] + HIDDEN if last else text


def _overlap(before: str, after: str) -> int:
    """Characters with which ``before`` ends and ``after`` begins, if it is not just a few."""
    longest = min(len(before), len(after))
    return next((n for n in range(longest, _SHORTEST_PART - 1, -1) if before.endswith(after[:n])), 0)
