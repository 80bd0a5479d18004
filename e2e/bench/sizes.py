"""Two sizes of a benchmark: one that answers in a few minutes, and the full one, which its bars are for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence


def parsed(
    parser: ArgumentParser, full: Mapping[str, float], argv: Sequence[str] | None = None
) -> tuple[Namespace, str]:
    """The options, and their size: ``short`` as the parser has it, ``full``, or ``own`` where some were given.

    ``full``: by destination, the defaults of ``--full``.
    """
    parser.add_argument("--full", action="store_true", help=f"the size that its bars are for: {_in_words(full)}")
    defaults = {name: parser.get_default(name) for name in full}
    if parser.parse_known_args(argv)[0].full:
        parser.set_defaults(**full)
    options = parser.parse_args(argv)
    given = {name: getattr(options, name) for name in full}
    return options, "full" if given == full else "short" if given == defaults else "own"


def _in_words(full: Mapping[str, float]) -> str:
    return ", ".join(f"{value:g} {name.replace('_', '-')}" for name, value in full.items())
