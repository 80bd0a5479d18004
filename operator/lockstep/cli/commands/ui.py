"""`lockstep ui`: the operator's web page, in the browser, as you."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Callable, Iterator
from html import escape
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from lockstep.cli import output
from lockstep.cli.client import resource_path
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.options import ClusterTarget, OperatorNamespace, flag, verb

if TYPE_CHECKING:
    from lockstep.cli.client import Cluster

app = typer.Typer()
OPERATOR = "deployment/lockstep-operator"
LEASE = "lockstep-operator"
PORT = 8090
AGAIN = 1.0
"""Seconds from the end of one forwarded port to the next."""
PATIENCE = 300.0
"""Seconds for which an operator may be away: a node that is lost, an upgrade."""
ANSWER_SECONDS = 20.0
_WORDS = 4
_FORWARDED = re.compile(r"^Forwarding from 127\.0\.0\.1:(\d+) ->")


@verb(app, "ui", "lockstep ui")
def ui(
    target: ClusterTarget,
    url: Annotated[str, flag("--url", "Where the page is exposed; else its port is forwarded.")] = "",
    namespace: OperatorNamespace = "lockstep-system",
) -> None:
    """Open the operator's web page (rack map, queues, runs) in the browser, signed in as you."""
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url} is no address of a page", "write https://, then its host")
    cluster = target.connect()
    if url:
        with opened(url, cluster):
            output.note("Press Enter once the page is there.")  # input's own words would go to a closed pipe, too
            input()
        return
    with contextlib.ExitStack() as stack:

        def first(port: int) -> None:
            stack.enter_context(opened(f"http://127.0.0.1:{port}", cluster))
            output.note("Interrupt to end it (Ctrl-C).")

        keep_forwarded(cluster, namespace, target.kubeconfig, first)


@contextlib.contextmanager
def opened(base: str, cluster: Cluster) -> Iterator[None]:
    """Have the browser open the page. The token is in no command line, log or history: it goes through a file of yours
    that leads there, and behind the # of the address, which browsers send to nobody."""
    page, token = f"{base.rstrip('/')}/ui/", cluster.token()
    output.note(page)
    if not token:
        output.note("This context signs in without a token: paste one there (kubectl create token ACCOUNT).")
    with doorway(f"{page}#token={quote(token, safe='')}" if token else page) as door:
        if not webbrowser.open(door.as_uri()):
            output.note("No browser could be opened; open that address yourself, and paste your token.")
        yield


@contextlib.contextmanager
def doorway(address: str) -> Iterator[Path]:
    """A page that only you can read and that leads to ``address``, for as long as it takes."""
    with tempfile.TemporaryDirectory(prefix="lockstep-ui-") as folder:  # 0700
        door = Path(folder) / "index.html"
        door.write_text(
            f'<!doctype html><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={escape(address, quote=True)}">'
        )
        yield door


def keep_forwarded(cluster: Cluster, namespace: str, kubeconfig: str | None, first: Callable[[int], None]) -> None:
    """Forward a port until interrupted; ``first`` is told which once the page answers there.

    A forwarded port leads to one pod and ends with it. Then it is forwarded anew, to whoever leads by then and under
    the same number: the page in the browser goes on by itself. Raises CliError where that fails the first time, or
    later for ``PATIENCE`` seconds.
    """
    port, until = 0, 0.0
    while True:
        try:
            with forwarded(namespace, leader(cluster, namespace), cluster.context, kubeconfig, port) as (
                found,
                forwarding,
            ):
                if not port:
                    require_page(found)
                    first(found)
                port, until = found, 0.0
                forwarding.wait()
            output.note("The operator's pod has gone away; its page is looked for again.")
        except CliError:
            until = until or time.monotonic() + PATIENCE
            if not port or time.monotonic() > until:
                raise
        time.sleep(AGAIN)


def leader(cluster: Cluster, namespace: str) -> str:
    """The pod that leads, which alone hears workers; any one of the operator's where you may not read its lease."""
    try:
        lease = cluster.get(resource_path("/apis/coordination.k8s.io/v1", namespace, "leases", LEASE))
    except CliError:
        return OPERATOR
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    pod = holder.rpartition("-")[0]  # then what tells processes apart
    return f"pod/{pod}" if pod else OPERATOR


def require_page(port: int) -> None:
    """Raises CliError where what the port leads to is not the page."""
    try:
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)) as connection:
            connection.request("GET", "/ui/")
            connection.getresponse().read()
    except (OSError, HTTPException) as error:
        raise CliError(
            "the operator serves no page there, or serves it to others over TLS",
            "install its chart with web.enabled=true; with web.expose=true name --url https://…",
        ) from error


@contextlib.contextmanager
def forwarded(
    namespace: str, target: str, context: str, kubeconfig: str | None, port: int = 0
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A local port (0: a free one) that leads to the page of ``target``, by kubectl. Raises CliError."""
    ports = f"{port or ''}:{PORT}"
    command = ["kubectl", "port-forward", "--namespace", namespace, "--address", "127.0.0.1", target, ports]
    command += [f"--context={context}"] if context else []
    command += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise CliError(f"kubectl cannot be run: {error.strerror}", "install it, or name --url") from error
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            said: deque[str] = deque(maxlen=_WORDS)
            listening = _read_on(process.stderr, said)
            found = _FORWARDED.match(process.stdout.readline())
            if found is None:
                process.wait()
                listening.join()
                why = " ".join(said).strip().removeprefix("error: ").removeprefix("Error from server ")
                pod = target.removeprefix("pod/")
                if f'pods "{pod}" not found' in why:
                    words = f"the operator that leads, {pod}, is no pod of namespace {namespace}"
                    raise CliError(
                        words, "try again if it has just ended; if it runs elsewhere, name --url of its page"
                    )
                raise CliError(f"no port could be forwarded: {why}", "name --url where the page is exposed")
            _read_on(process.stdout, said)
            yield int(found[1]), process
        finally:
            process.terminate()


def _read_on(stream: IO[str], last: deque[str]) -> threading.Thread:
    """kubectl has words for every connection, and stands still once nobody takes them."""

    def read() -> None:
        with contextlib.suppress(ValueError):  # closed
            last.extend(line.strip() for line in stream)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
