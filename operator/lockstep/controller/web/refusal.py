"""Why a request is turned away, and how that is said."""

import logging

import orjson
from aiohttp import web

from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.web.strangers import TooManyStrangersError
from lockstep.controller.web.threads import BusyError
from lockstep.controller.workers.trust import ReviewUnavailableError, UnauthenticatedError

log = logging.getLogger("lockstep.controller.web")

MOST_WORDS = 400
"""Of what the API server, or a webhook, says."""


class RefusalError(Exception):
    """With the status of its answer, and the seconds after which to come again."""

    def __init__(self, status: int, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def of_api(error: KubeError, right: str, role: str, namespace: str) -> RefusalError:
    """What the API server answered to the viewer's own token. ``right``: what was tried needs it, ``role`` has it."""
    match error:
        case ApiError(status=401):  # it was good for this page a moment ago
            remedy = "sign in with one that the API server takes, as lockstep ui does"
            return RefusalError(403, f"this token is for the page alone, or has expired; {remedy}")
        case ApiError(status=403) if error.lacks_right:
            return RefusalError(403, f"you may not {right} in namespace {namespace}; ask for the role {role} there")
        case ApiError(status=429):
            return RefusalError(503, "the API server is busy; try again", retry_after=max(1.0, error.retry_after))
        case ApiError() if error.status < 500:
            return RefusalError(error.status, error.words[:MOST_WORDS])
        case UnknownOutcome() | ApiError():
            return RefusalError(504, "no answer of the API server: it may have been done; look before you try again")
        case _:
            return RefusalError(503, "the API server cannot be reached; nothing was done", retry_after=5)


def answer(request: web.Request, error: Exception) -> web.Response:
    """What is said of ``error``; of a defect nothing but that it is one."""
    headers = {"Cache-Control": "no-store"}
    match error:
        case RefusalError():
            status, message, wait = error.status, str(error), error.retry_after
        case UnauthenticatedError():
            status, message, wait = 401, str(error), 0.0
        case TooManyStrangersError():
            status, message, wait = 429, str(error), error.seconds
        case BusyError():
            status, message, wait = 503, str(error), error.seconds
        case ReviewUnavailableError():
            status, message, wait = 503, str(error), 5.0
        case web.HTTPException():
            status, message, wait = error.status, error.reason, 0.0
        case _:
            log.error("%s failed", request.path, exc_info=error)
            status, message, wait = 500, "this is a defect of the operator; its log says more", 0.0
    if wait:
        headers["Retry-After"] = str(max(1, round(wait)))
    return web.Response(
        status=status, body=orjson.dumps({"message": message}), content_type="application/json", headers=headers
    )
