"""What the steps of a script say to pyxis, before it runs."""

from __future__ import annotations

import re
from typing import Dict, List, Match, NamedTuple, Optional, Tuple

from lockstep.slurm.images import image

# What stands in for variables: what has more counts as not known. Each pattern here takes time that grows with the
# script and no faster, as the script may be a tenant's.
MOST_CHARACTERS = 4096  # in one value
MOST_OF_ALL = 16 * MOST_CHARACTERS  # in those of one script
IMAGE, MOUNTS = "container-image", "container-mounts"
_VALUE = r"((?:(?<=[=\s:,])\"[^\"\n]*\"|(?<=[=\s:,])'[^'\n]*'|\$\([^)\n]*\)?|[^\s\\;|&)\"'])+)"
_ASSIGNMENT = re.compile(
    r"\"[^\"\n]*\"|'[^'\n]*'"  # what is quoted assigns nothing
    r"|(?:^|[;&|(){]|\b(?:then|else|do)\b)[^\S\n]*(?:export\s+|readonly\s+|declare\s+)?"
    r"([A-Za-z_]\w*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;]*)",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^{}]*))?\})")
_OWN_DEFAULT = re.compile(r"[\"']?\$\{(\w+):?-([^}]*)\}[\"']?")
_NO_STEP = re.compile(r"\s*(?:#|(?:echo|printf|sbatch)\b)")  # lines that begin so


class StepOption(NamedTuple):
    """One option of a step: as written, and with plain variables of the script filled in."""

    written: str
    filled: str

    @property
    def is_known(self) -> bool:
        """Before the script runs."""
        return not re.search(r"[$`()]", self.filled)


def step_options(script: str, option: str) -> List[StepOption]:
    """What the steps of a script say of an option, in the order of its lines; each once."""
    joined = _joined(script)
    known = _assigned(joined)
    options: Dict[str, StepOption] = {}
    room = MOST_OF_ALL
    for text in re.findall(rf"--{option}(?:=|\s+){_VALUE}", joined):
        if text not in options:
            filled, used = _filled(text, known) if room > 0 else (text, 0)
            room -= used
            options[text] = StepOption(text, filled)
    return list(options.values())


def hoisted(script: str) -> Optional[str]:
    """The ``--container-image`` of the script's first step that names one. None: none does. Raises ValueError when its
    name is only known once the script runs."""
    first = next(iter(step_options(script, IMAGE)), None)
    if first is None:
        return None
    if not first.is_known:
        raise ValueError(
            f"--container-image={first.written} is known only once the script runs; write #SBATCH "
            "--container-image=IMAGE"
        )
    return image(first.filled)


def _assigned(joined: str) -> Dict[str, str]:
    """Variables by name. One that is given several values stands for itself: which of them counts, and when, only the
    running script knows."""
    known: Dict[str, str] = {}
    for name, value in filter(lambda found: found[0], _ASSIGNMENT.findall(joined)):
        own = _OWN_DEFAULT.fullmatch(value)
        value = own[2] if own and own[1] == name else value
        if value.strip("\"'") != known.setdefault(name, value).strip("\"'"):
            known[name] = f"${name}"
    return known


def _filled(written: str, known: Dict[str, str]) -> Tuple[str, int]:
    """With its variables filled in, and how many characters those were, also where that is too many."""
    room = MOST_CHARACTERS

    def value(seen: Match[str]) -> str:
        nonlocal room
        found = known.get(seen[1] or seen[2], seen[3] or seen[0])
        room -= len(found)
        return found if room >= 0 else ""

    text = written
    for _ in range(8):  # variables of variables
        if "$" not in text or written.startswith("'"):
            break
        before, text = text, _VARIABLE.sub(value, text)
        if room < 0:
            return written, MOST_CHARACTERS - room
        if text == before:
            break
    return text.replace('"', "").replace("'", ""), MOST_CHARACTERS - room


def _joined(script: str) -> str:
    """Without comments and what only prints, and with continued lines as one."""
    lines = [line for line in script.split("\n") if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return "\n".join(line for line in joined.split("\n") if not _NO_STEP.match(line))
