"""A headless Chromium, spoken to in its own protocol: no driver has to be installed beside it.

Debian's package ``chromium-headless-shell`` is enough, so is any Chromium or Chrome on PATH; LOCKSTEP_CHROMIUM names
another one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "no Chromium on PATH: apt-get install chromium-headless-shell, or name one in LOCKSTEP_CHROMIUM"
STARTS_WITHIN = 60.0
SHOWS_WITHIN = 40.0
_KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, "ArrowDown": 40, "Enter": 13, "Tab": 9, "End": 35}


def program() -> str | None:
    """The browser, if there is one."""
    named = os.environ.get("LOCKSTEP_CHROMIUM")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """One tab. ``problems``: what it said on its console as a warning or worse, exceptions, and refusals of its CSP."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Take in what the browser says, until it is gone."""
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
                continue
            said = told["params"]
            if told["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(said["exceptionDetails"])[:600])
            elif told["method"] == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command, and its answer."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        told = await asyncio.wait_for(answer, SHOWS_WITHIN)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        found: dict[str, Any] = told["result"]
        return found

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:600])
        return answer["result"].get("value")

    async def open(self, url: str) -> None:
        """Go to ``url``, in a document of its own."""
        await self.send("Page.navigate", url="about:blank")
        await self.send("Page.navigate", url=url)

    async def until(self, expression: str) -> Any:
        """The value of ``expression`` once it is true. Raises TimeoutError with what the page shows instead."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHOWS_WITHIN):
                while True:
                    with contextlib.suppress(RuntimeError):  # between two documents
                        if value := await self.evaluate(expression):
                            return value
                    await asyncio.sleep(0.05)
        raise TimeoutError(f"{expression} is never true; {self.problems}; {(await self.text())[:800]}")

    async def shown(self, key: str) -> None:
        """Wait until the page ``key`` (fleet, queue, run, signin) has been drawn."""
        await self.until(f"document.querySelector('main')?.dataset.ready === '{key}'")

    async def text(self) -> str:
        """What can be read."""
        return str(await self.evaluate("document.body.innerText"))

    async def press(self, key: str) -> None:
        """Press a key where the focus is."""
        code = {"windowsVirtualKeyCode": _KEYS[key], "key": key, "code": key}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **code, **({"text": "\r"} if key == "Enter" else {}))
        await self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    async def size(self, width: int, height: int) -> None:
        """The window."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def theme(self, name: str) -> None:
        """``light`` or ``dark``."""
        wanted = [{"name": "prefers-color-scheme", "value": name}]
        await self.send("Emulation.setEmulatedMedia", features=wanted)

    async def picture(self) -> bytes:
        """What the window shows, as PNG."""
        await self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Page]:
    """A browser with one tab and nothing remembered in ``folder``. There has to be a ``program``."""
    found = program()
    assert found is not None, MISSING
    options = ["--headless", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--force-color-profile=srgb"]
    options += ["--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # which root cannot have; what is opened is our own page
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *(found, *options, f"--user-data-dir={folder}", "about:blank"),
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,  # Debian's program is a script, the browser is its child: they end as a group
    )
    try:
        url = await _tab(folder / "DevToolsActivePort")
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, max_msg_size=0) as socket,
            asyncio.TaskGroup() as tasks,
        ):
            page = Page(socket)
            listening = tasks.create_task(page.listen())
            for domain in ("Page", "Runtime", "Log"):
                await page.send(f"{domain}.enable")
            yield page
            listening.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _tab(announced: Path) -> str:
    """The address of its first tab, once it has told its port."""
    async with asyncio.timeout(STARTS_WITHIN), aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(OSError, IndexError, ValueError, aiohttp.ClientError):
                port = (await asyncio.to_thread(announced.read_text)).splitlines()[0]
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
                    return str(tabs[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
