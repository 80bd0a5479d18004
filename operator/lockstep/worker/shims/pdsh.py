"""``pdsh`` as DeepSpeed and people call it: one shell text for many hosts, each line behind its host's name."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from lockstep.slurm import hostlist
from lockstep.worker.shims.request import ShimAnswer, ShimPart, ShimRequest, ShimTask
from lockstep.worker.shims.targets import Gang

FLAGS = "abcdhiknqrsACLNSVX"
WITH_VALUE = "FRefglotuwxDO"
VERSION = "pdsh-2.34, the stand-in of Lockstep for the nodes of one gang\n"
_USAGE = "Usage: pdsh [-options] command ...\n"
_NOT_HERE = {"g": "has no groups of hosts", "A": "has no groups of hosts", "F": "has no groups of hosts"}


class PdshCommand(NamedTuple):
    """One call. ``texts``: for each host its own, as ``%h`` and ``%n`` differ."""

    hosts: Sequence[str]
    texts: Sequence[str]
    labels: bool = True
    highest_code: bool = False
    timeout: int = 0  # seconds of a command; 0: none


def parse(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    gang: Gang,
    user: str = "",
    reader: Optional[Callable[[str], str]] = None,
) -> Union[PdshCommand, ShimAnswer]:
    """What is asked for, or what there is to say to that. ``reader``: text of a file; ``-`` is stdin."""
    found, words, problem = _options(arguments)
    if problem:
        return problem
    if "V" in found:
        return ShimAnswer(0, out=VERSION)
    if "h" in found:
        return ShimAnswer(0, out=_USAGE)
    refused = sorted(letter for letter in found if letter in _NOT_HERE)
    if refused:
        return ShimAnswer(1, err=f"pdsh@lockstep: -{refused[0]}: this pdsh, Lockstep's, {_NOT_HERE[refused[0]]}\n")
    try:
        hosts = _hosts(found, environ, gang, reader)
    except (ValueError, OSError) as error:
        return ShimAnswer(1, err=f"pdsh@lockstep: {error}\n")
    if not hosts:
        return ShimAnswer(1, err="pdsh@lockstep: no remote hosts specified\n")
    if not words:
        return ShimAnswer(1, err="pdsh@lockstep: no command is given, and there is no terminal to type one\n")
    text = " ".join(words)
    texts = [expanded(text, host, rank, found.get("l", [user])[-1]) for rank, host in enumerate(hosts)]
    text = found.get("u", [""])[-1]
    timeout = int(text) if re.fullmatch("[0-9]{1,9}", text) else 0
    return PdshCommand(hosts, texts, "N" not in found, "S" in found, timeout)


def request(command: PdshCommand, gang: Gang) -> Tuple[ShimRequest, List[str]]:
    """(the step: a task for each host that is of the gang, numbered as in -w; lines for those that are not)."""
    parts, lines, labels = [], [], {}
    for number, (host, text) in enumerate(zip(command.hosts, command.texts)):  # noqa: B905, strict is younger than Python 3.8
        rank = gang.rank_of(host)
        if rank is None:
            lines.append(f"{host}: ssh: Could not resolve hostname {host}: it is no node of this gang")
            lines.append(exit_line(host, 255))
            continue
        parts.append(ShimPart(rank, [ShimTask(number)], shell=text))
        labels[number] = f"{host}: "
    return ShimRequest(parts, labels=labels if command.labels else None), lines


def expanded(text: str, host: str, rank: int, user: str) -> str:
    """``%h`` host, ``%n`` its number in -w, ``%u`` user, ``%%`` a percent sign; others stay."""
    values = {"%h": host, "%n": str(rank), "%u": user, "%%": "%"}
    return re.sub("%[hnu%]", lambda found: values[found[0]], text)


def exit_line(host: str, code: int) -> str:
    """What pdsh says on stderr of a command that failed."""
    return f"pdsh@lockstep: {host}: ssh exited with exit code {code}"


def exit_code(command: PdshCommand, codes: Sequence[int]) -> int:
    """With ``-S`` the highest of the remote codes, else 0."""
    return max(codes, default=0) if command.highest_code else 0


def _options(arguments: Sequence[str]) -> Tuple[Dict[str, List[str]], List[str], Optional[ShimAnswer]]:
    words = list(arguments)
    found: Dict[str, List[str]] = {}
    while words and words[0].startswith("-") and words[0] != "-":
        letters = words.pop(0)[1:]
        if letters == "-":
            break
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in WITH_VALUE:
                if not letters and not words:
                    return found, words, ShimAnswer(1, err=f"pdsh: option requires an argument -- '{letter}'\n{_USAGE}")
                found.setdefault(letter, []).append(letters or words.pop(0))
                break
            if letter not in FLAGS:
                return found, words, ShimAnswer(1, err=f"pdsh: invalid option -- '{letter}'\n{_USAGE}")
            found.setdefault(letter, []).append("")
    return found, words, None


def _hosts(
    found: Mapping[str, List[str]], environ: Mapping[str, str], gang: Gang, reader: Optional[Callable[[str], str]]
) -> List[str]:
    """Raises ValueError, OSError."""
    wanted: List[str] = []
    unwanted: List[str] = []
    for word in _words(",".join(found.get("w", []))):
        if word.startswith("-") and word != "-":
            unwanted += hostlist.expand(word[1:])
        elif word == "-" or word.startswith("^"):
            if reader is None:
                raise ValueError(f"{word} cannot be read here")
            wanted += hostlist.expand(",".join(reader(word.lstrip("^")).split()))
        else:
            wanted += [_without_user(host) for host in hostlist.expand(word)]
    if "w" not in found and "a" in found:
        wanted = list(gang.addresses)
    elif "w" not in found and environ.get("WCOLL") and reader is not None:
        wanted = hostlist.expand(",".join(reader(environ["WCOLL"]).split()))
    for word in found.get("x", []):
        unwanted += hostlist.expand(word)
    return [host for host in wanted if host not in unwanted]


def _words(text: str) -> List[str]:
    """What commas outside brackets separate."""
    return re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)


def _without_user(host: str) -> str:
    """``rcmd:user@host`` without what is not asked for here."""
    return re.sub(r"^(?:[a-z]+:(?!.*:))?(?:[^@]*@)?", "", host)
