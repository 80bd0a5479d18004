"""``module``: of a site's shell function nothing is left in an image; scripts that call it go on."""

from __future__ import annotations

from typing import Sequence

from lockstep.worker.shims.request import ShimAnswer

_NOTHING = ("avail", "av", "spider", "whatis", "list", "keyword", "show", "display", "help", "is-loaded", "is-avail")


def answer(arguments: Sequence[str], said_before: bool) -> ShimAnswer:
    """Code 0, so that ``set -e`` goes on; once it says why nothing happens, on stderr as module itself does."""
    if said_before:
        return ShimAnswer(0)
    what = " ".join(["module", *arguments[:8]])
    words = "has nothing to show" if arguments[:1] and arguments[0] in _NOTHING else "does nothing"
    return ShimAnswer(
        0, err=f"{what}: {words} here: the image has its software on PATH already, or another image has it\n"
    )
