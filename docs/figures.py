"""Draws the figures of docs/architecture.md that the code's own tables and contracts hold.

A figure stands between ``<!-- figure: NAME -->`` and ``<!-- end -->``; everything else on the page is prose.
"""

import argparse
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from lockstep.core.admission.admit import admit
from lockstep.core.decide import ALWAYS, ALWAYS_LOOKING_ON, LOOKING_ON, STEPS
from lockstep.core.model.lifecycle import TRANSITIONS, Phase

PAGE = Path(__file__).with_name("architecture.md")


def lifecycle() -> str:
    """The phases of a run as a Mermaid diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.PENDING}"]
    lines += [f"    {before} --> {after}: {_label(why)}" for before, why, after in TRANSITIONS]
    lines.append(f"    {Phase.FINISHED} --> [*]")
    return _fenced(lines)


def steps() -> str:
    """The steps of ``decide`` in their order, what always follows, and the same of a run that is only looked on."""
    rows = ["| Step | |", "|---|---|"]
    rows += [f"| {number}. {_row(step)}" for number, step in enumerate(STEPS, 1)]
    rows += ["", "| Always | |", "|---|---|"]
    rows += [f"| {_row(always)}" for always in ALWAYS]
    rows += ["", "| Paused, or with a spec that cannot be read | |", "|---|---|"]
    documented = {step.__name__ for step in STEPS}
    for number, step in enumerate(LOOKING_ON, 1):
        row = f"{_title(step)} | as above |" if step.__name__ in documented else _row(step)
        rows.append(f"| {number}. {row}")
    also = {always.__name__ for always in ALWAYS_LOOKING_ON}
    left_out = ", ".join(_title(always) for always in ALWAYS if always.__name__ not in also)
    rows.append(f"| always | as above, without: {left_out} |")
    return "\n".join(rows)


def _row(step: Callable[..., object]) -> str:
    return f"{_title(step)} | {' '.join((step.__doc__ or '').split())} |"


def _title(step: Callable[..., object]) -> str:
    return step.__name__.replace("_", " ")


def cycle() -> str:
    """The steps of an admission cycle, by the comments that number them."""
    return "\n".join(re.findall(r"^ +# (\d+\. .+)$", inspect.getsource(admit), re.MULTILINE))


def rooms() -> str:
    """What each package is for and what it may import, by the contracts that import-linter holds."""
    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    tables = []
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] != "layers":
            continue
        container = contract.get("containers", ["lockstep"])[0]
        layers = [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]
        title = container.removeprefix("lockstep").removeprefix(".").replace(".", "/") or "lockstep"
        rows = [f"**`{title}`**: {_purpose(container)}", "", "| Room | For | May import |", "|---|---|---|"]
        for height, layer in enumerate(layers):
            below = "what stands below" if height + 1 < len(layers) else "nothing here"
            for name in layer:
                module = name if name.startswith(f"{container}.") else f"{container}.{name}"
                beside = f"{below}, and those beside it" if ":" in contract["layers"][height] else below
                rows.append(f"| `{module.rpartition('.')[2]}` | {_purpose(module)} | {beside} |")
        tables.append("\n".join(rows))
    return "\n\n".join(tables)


def _purpose(module: str) -> str:
    """The first sentence of its docstring, up to a blank line."""
    return " ".join((importlib.import_module(module).__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")


FIGURES: Mapping[str, Callable[[], str]] = {"cycle": cycle, "lifecycle": lifecycle, "rooms": rooms, "steps": steps}


def drawn(page: str) -> str:
    """``page`` with every figure drawn anew. Raises KeyError for a figure that nobody can draw."""
    pattern = re.compile(r"(<!-- figure: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda found: found[1] + FIGURES[found[2]]() + "\n" + found[3], page)


def main() -> int:
    """Draw, or with --check say whether the page is as it would be drawn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the page differs")
    check = parser.parse_args().check
    before = PAGE.read_text(encoding="utf-8")
    after = drawn(before)
    if before == after:
        return 0
    if check:
        print("docs/architecture.md is stale: run `make generate`")
        return 1
    PAGE.write_text(after, encoding="utf-8")
    print("wrote docs/architecture.md")
    return 0


def _label(words: str) -> str:
    """Mermaid ends a label at a second colon."""
    return words.replace(": true", " is true").replace(": false", " is false").replace(":", ",")


def _fenced(lines: list[str]) -> str:
    return "\n".join(["```mermaid", *lines, "```"])


if __name__ == "__main__":
    sys.exit(main())
