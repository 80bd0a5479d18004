"""What is plainly wrong with a user's regular expression, by one walk over its characters.

It is compiled in the user's pod, by the worker, which says what else is wrong with it (``Watch:Problem``). Compiling
takes as long as whoever wrote the pattern likes, and here everybody would wait for it.
"""

_NOTHING, _ITEM, _REPEATED = range(3)
"""What stands before a repeat."""
_FLAGS = "aiLmsux-"


def plain_mistake(pattern: str) -> str:
    """What Python would refuse, nearly in its words; empty: nothing that shows from here."""
    at, before, opened = 0, _NOTHING, list[int]()
    while at < len(pattern):
        char, begun = pattern[at], at
        at += 1
        if char == "\\":
            if at == len(pattern):
                return f"bad escape (end of pattern) at position {begun}"
            at, before = at + 1, _ITEM
        elif char == "[":
            at = at + pattern.startswith("^", at)
            at, before = _after("]", pattern, at + pattern.startswith("]", at)), _ITEM  # as its first it is meant
            if not at:
                return f"unterminated character set at position {begun}"
        elif char == "(" and pattern.startswith("?#", at):
            at = _after(")", pattern, at)
            if not at:
                return f"missing ), unterminated comment at position {begun}"
        elif char == "(":
            opened.append(begun)
            before = _NOTHING
            if pattern.startswith("?", at):
                flags = _flags(pattern, at + 1)
                if "x" in flags:
                    return ""  # its comments may hold anything
                if pattern[at + 1 : at + 2] == "<" and pattern[at + 2 : at + 3] not in ("=", "!"):
                    return f"unknown extension ?<{pattern[at + 2 : at + 3]} at position {at}; write (?P<name>…)"
                at += 1 + max(len(flags), pattern[at + 1 : at + 2] != "(")
        elif char == ")":
            if not opened:
                return f"unbalanced parenthesis at position {begun}"
            opened.pop()
            before = _ITEM
        elif char == "|":
            before = _NOTHING
        elif end := _after_repeat(pattern, begun):
            if before is not _ITEM:
                return f"{'multiple repeat' if before else 'nothing to repeat'} at position {begun}"
            least, _, most = pattern[begun + 1 : end - 1].partition(",")
            if least and most and int(least) > int(most):
                return f"min repeat greater than max repeat at position {begun}"
            at, before = end + (pattern[end : end + 1] in ("?", "+")), _REPEATED
        else:
            before = _ITEM
    return f"missing ), unterminated subpattern at position {opened[-1]}" if opened else ""


def _after(end: str, pattern: str, at: int) -> int:
    """What follows on the next ``end`` that is not escaped; 0: there is none."""
    while at < len(pattern):
        if pattern[at] == end:
            return at + 1
        at += 2 if pattern[at] == "\\" else 1
    return 0


def _flags(pattern: str, at: int) -> str:
    end = at
    while end < len(pattern) and pattern[end] in _FLAGS:
        end += 1
    return pattern[at:end]


def _after_repeat(pattern: str, at: int) -> int:
    """Where the repeat ends that begins at ``at``; 0: there is none."""
    if pattern[at] in "*+?":
        return at + 1
    end = pattern.find("}", at)
    counts = pattern[at + 1 : end].split(",") if pattern[at] == "{" and end > at + 1 else []
    return end + 1 if 0 < len(counts) <= 2 and all(not n or (n.isascii() and n.isdigit()) for n in counts) else 0
