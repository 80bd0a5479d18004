"""Whether the operator works as workers and Prometheus see it: `reachable.py WORKER_URL METRICS_URL [SECONDS]`."""

import ssl
import sys
import time
import urllib.error
import urllib.request


def answer(url, context=None, data=None):
    """Status and text. Raises OSError."""
    try:
        with urllib.request.urlopen(url, data, timeout=10, context=context) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def trouble(workers, metrics):
    """What is wrong, or nothing."""
    try:
        status, text = answer(metrics + "/readyz")
        if status != 200:
            return f"the operator is not ready: {text.strip()}"
        # Its CA is told to workers alone. What counts here is that it answers: no secret goes there, and none comes.
        status, text = answer(workers + "/v1/report", ssl._create_unverified_context(), b"{}")
    except OSError as error:
        return f"the operator is not reachable: {error}"
    if status == 503:
        return f"the operator is reachable, and does not lead: {text.strip()}"
    return "" if status == 401 else f"the worker API answers {status} and asks for no token: {text.strip()}"


def main(workers, metrics, seconds="60"):
    """The exit code. One that has just been started gets some time."""
    deadline = time.monotonic() + float(seconds)
    while (found := trouble(workers, metrics)) and time.monotonic() < deadline:
        time.sleep(2)
    print(found or "the operator leads, and workers reach it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
