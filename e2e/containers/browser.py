"""A browser for `lockstep ui`: follows the door that it opens, and writes down what the page would show.

`browser.py FILE NAMESPACE RUN DOOR`; standard library only.
"""

import json
import re
import sys
import urllib.request
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit


def main() -> None:
    told, namespace, name, door = sys.argv[1:]
    [address] = re.findall(r"url=([^\"]+)", Path(unquote(urlsplit(door).path)).read_text())
    page, _, token = unescape(address).partition("#token=")

    def fetched(path: str) -> str:
        request = urllib.request.Request(page + path, headers={"Authorization": f"Bearer {unquote(token)}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    seen = {
        "page": fetched(""),
        "fleet": json.loads(fetched("api/fleet")),
        "run": json.loads(fetched(f"api/runs/{namespace}/{name}")),
    }
    unfinished = Path(told).with_suffix(".new")
    unfinished.write_text(json.dumps(seen))
    unfinished.replace(told)


if __name__ == "__main__":
    main()
