"""Who the API server takes you for."""

from __future__ import annotations

from lockstep.cli.client import Cluster
from lockstep.cli.errors import ApiServerError, CliError


def my_name(cluster: Cluster) -> str:
    """The name, as runs that you submit carry it; empty where the API server does not tell."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = cluster.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    except ApiServerError as error:
        if error.status == 401:
            raise
        return ""
    name: str = answer.get("status", {}).get("userInfo", {}).get("username", "")
    return name


def asked_for(cluster: Cluster, user: str, *, me: bool) -> str:
    """The user that ``--user`` or ``--me`` means; empty: all. Raises CliError where nobody knows who you are."""
    if not me:
        return user
    mine = my_name(cluster)
    if not mine:
        raise CliError("the API server does not say who you are", "--user NAME names you")
    return mine
