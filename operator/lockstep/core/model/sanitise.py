"""Text that somebody else wrote, made fit to be shown: status, events and terminals are read by whoever administers.

A training says what it likes, and a pod's last message is a file of its own. In a terminal some characters hide
or forge what stands beside them.
"""

import re

UNSHOWN = "\N{REPLACEMENT CHARACTER}"
_SEQUENCES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, and whatever else moves about in a terminal
    "|\x1b\\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\\\)"  # titles and links
)
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text that reads other than it is written
_INVISIBLE = "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HIDDEN = re.compile(f"[{_CONTROL}{_DIRECTION}{_INVISIBLE}\ud800-\udfff]")
_BREAKS = re.compile(r"[\t\r\n]+")


def lines(text: str) -> str:
    """Several lines: without terminal sequences, a carriage return as a new line, what cannot be shown replaced."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _HIDDEN.sub(UNSHOWN, text)


def line(text: str) -> str:
    """The same in one line."""
    return text if text.isascii() and text.isprintable() else _BREAKS.sub(" ", lines(text))
