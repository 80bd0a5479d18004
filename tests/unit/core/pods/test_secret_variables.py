"""Whether a container's environment holds secrets that its program might print."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.core.pods.secret_variables import holds_secrets, is_secret
from lockstep.worker import secrets


@given(name=st.from_regex(secrets.SECRET_NAME) | st.text(), value=st.from_regex(r"\A(/[a-z.]{1,8}){0,4}\Z") | st.text())
@example(name="HF_TOKEN", value="1234567")
@example(name="HF_TOKEN", value="12345678")
@example(name="TOKEN_PATH", value="/abcdefgh")
@example(name="TOKEN", value="/abcdefgh")
@example(name="TOKEN", value="/etc/abcdefgh")
def test_a_secret_is_what_the_worker_would_hide(name: str, value: str) -> None:
    assert is_secret(name, value) == bool(secrets.secret_values({name: value}))


def secret(name: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}


@pytest.mark.parametrize(
    ("container", "holds"),
    [
        ({}, False),
        ({"env": None, "envFrom": None}, False),
        ({"env": [{"name": "SEED", "value": "12345678"}]}, False),
        ({"env": [{"name": "HF_TOKEN", "value": "1234567"}]}, False),
        ({"env": [{"name": "HF_TOKEN", "value": "12345678"}]}, True),
        ({"env": [{"name": "TOKEN_PATH", "value": "/var/tokens/hub"}]}, False),
        ({"env": [{"name": "LOCKSTEP_TOKEN", "value": "12345678"}]}, False),
        ({"env": [secret("WANDB")]}, True),
        ({"env": [{"name": "HF_TOKEN", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]}, True),
        ({"env": [{"name": "SEED", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]}, False),
        ({"env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}, False),
        ({"env": [{"name": "SEED", "valueFrom": "hub"}]}, False),
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, False),
        ({"envFrom": [{"secretRef": {"name": "hub"}}]}, True),
    ],
)
def test_a_container_holds_secrets_by_where_values_come_from_or_by_their_names(
    container: dict[str, Any], holds: bool
) -> None:
    assert holds_secrets(container) is holds
