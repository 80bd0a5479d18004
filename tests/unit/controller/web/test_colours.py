"""What is written on the page can be read: contrasts as WCAG 2.2 asks for text (4.5 to 1)."""

import re
from importlib.resources import files
from itertools import product

import pytest

STYLE = files("lockstep.controller.web").joinpath("static", "style.css").read_text()
THEMES = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)]
WRITTEN = ("ink", "muted", "accent", "good", "warn", "bad")
BEHIND = ("panel", "bg", "hover")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), list(product(WRITTEN, BEHIND)))
def test_text_stands_out_from_what_is_behind_it(theme: dict[str, str], text: str, behind: str) -> None:
    dark, light = sorted((luminance(theme[text]), luminance(theme[behind])))
    assert (light + 0.05) / (dark + 0.05) >= 4.5
