"""A browser for `lockstep ui`: `browser.py FILE DOOR` writes down where the door leads. Standard library only."""

import os
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit


def main() -> None:
    told, door = sys.argv[1:]
    [address] = re.findall(r"url=([^\"]+)", Path(unquote(urlsplit(door).path)).read_text())
    unfinished = Path(told).with_suffix(".new")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(unescape(address))  # with a token
    unfinished.replace(told)


if __name__ == "__main__":
    main()
