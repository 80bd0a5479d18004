"""``ssh`` as mpirun, pdsh and DeepSpeed call it: options, a host, and shell text for that host.

Options are read as OpenSSH reads them, behind the host too; what concerns keys, configuration and encryption changes
nothing here, and what asks for more than a command is refused.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from lockstep.worker.shims.request import EVERYBODY, NOBODY, ShimAnswer, ShimPart, ShimRequest, ShimTask
from lockstep.worker.shims.targets import Gang

FAILED = 255  # of ssh itself, whatever was wrong
VERSION = "OpenSSH_9.2p1, the stand-in of Lockstep for the nodes of one gang\n"
FLAGS = "1246AaCfGgKkMNnqsTtVvXxYy"
WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"
_USAGE = "usage: ssh [options] destination [command [argument ...]]\n"
_NOT_HERE = {
    "D": "forwards no ports", "G": "has no configuration", "L": "forwards no ports", "M": "has no master connections",
    "N": "does nothing without a command", "O": "has no master connections", "Q": "has no algorithms",
    "R": "forwards no ports", "s": "has no subsystems, sftp among them", "W": "forwards no ports",
    "w": "forwards no devices",
}  # fmt: skip


class SshCommand(NamedTuple):
    """One call. ``text`` is for the remote shell; empty: that reads stdin."""

    host: str
    text: str
    user: str = ""
    stdin: bool = True
    quiet: bool = False
    detached: bool = False


def parse(arguments: Sequence[str]) -> Union[SshCommand, ShimAnswer]:
    """What is asked for, or what there is to say to that."""
    host: Optional[str] = None
    words = list(arguments)
    found: Dict[str, str] = {}
    while words:
        word = words[0]
        if word == "--":
            words.pop(0)
            if host is None and words:
                host = words.pop(0)
            break
        if not word.startswith("-") or word == "-":
            if host is not None:
                break
            host = words.pop(0)
            continue
        words.pop(0)
        problem = _options(word[1:], words, found)
        if problem:
            return problem
    if "V" in found:
        return ShimAnswer(0, err=VERSION)
    refused = sorted(letter for letter in found if letter in _NOT_HERE)
    if refused:
        return ShimAnswer(FAILED, err=f"ssh: -{refused[0]}: this ssh, Lockstep's, {_NOT_HERE[refused[0]]}\n")
    if not host:
        return ShimAnswer(FAILED, err=_USAGE)
    user, host = _destination(host)
    detached = "f" in found
    stdin = not detached and "n" not in found
    return SshCommand(host, " ".join(words), found.get("l", user), stdin, "q" in found, detached)


def request(command: SshCommand, gang: Gang) -> Union[ShimRequest, ShimAnswer]:
    """The step for it: on that node, with its own environment. Of users there is one, whoever is named."""
    rank = gang.rank_of(command.host)
    if rank is None:
        return ShimAnswer(FAILED, err=unknown_host(command.host))
    part = ShimPart(rank, [ShimTask(0)], shell=command.text or "exec /bin/sh")
    return ShimRequest([part], stdin=EVERYBODY if command.stdin else NOBODY, detached=command.detached)


def unknown_host(host: str) -> str:
    """Words for a host that is not of the gang, the first of them as ssh's."""
    return f"ssh: Could not resolve hostname {host}: it is no node of this gang, the only ones reached from here\n"


def unreachable(host: str, why: str) -> str:
    """Words for a node that does not answer."""
    return f"ssh: connect to host {host}: {why}\n"


def exit_code(code: Optional[int]) -> int:
    """ssh's, for that of the remote shell. None: a signal ended it."""
    return FAILED if code is None else code


def _options(letters: str, words: List[str], found: Dict[str, str]) -> Optional[ShimAnswer]:
    """Read one word of them; a value may be the rest of the word, or the next one."""
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter in WITH_VALUE:
            if not letters and not words:
                return ShimAnswer(FAILED, err=f"ssh: option requires an argument -- {letter}\n{_USAGE}")
            found.setdefault(letter, letters or words.pop(0))  # ssh too: the first one counts
            return None
        if letter not in FLAGS:
            return ShimAnswer(FAILED, err=f"ssh: unknown option -- {letter}\n{_USAGE}")
        found[letter] = ""
    return None


def _destination(text: str) -> Tuple[str, str]:
    """(user, host) of ``user@host`` or ``ssh://user@host:port``."""
    if text.startswith("ssh://"):
        user, _, host = text[len("ssh://") :].rstrip("/").rpartition("@")
        name, colon, port = host.rpartition(":")
        return user, name if colon and port.isdigit() else host
    user, _, host = text.rpartition("@")
    return user, host
