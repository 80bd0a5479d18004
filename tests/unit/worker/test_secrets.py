"""Secrets in the environment of the training stay there."""

from typing import Any

import pytest

from lockstep.worker.secrets import HIDDEN, secret_values, without_secrets

ENVIRONMENT = {
    "WANDB_API_KEY": "0123456789abcdef",
    "HF_TOKEN": "hf_abcdefghijkl",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
    "DB_PASSWORD": "correct horse",
    "LONGER_TOKEN": "hf_abcdefghijkl-and-more",
    "STARTS_LIKE_A_PATH_KEY": "/Xq3jd+9fkUtnFEMI/K7MDENG",
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=x;AccountKey=abc==",
}


def report(text: str) -> dict[str, Any]:
    return {
        "phase": "Exited", "problem": text, "newCheckpoints": [{"path": f"/p/{text}"}],
        "exit": {"code": 1, "stderrTail": f"KeyError: {text}\n"}, "stacks": {"id": "s", "text": text},
        "signs": [{"kind": "Rule:x", "text": text}], "stepEnds": [{"task": 1, "stderrTail": text}],
    }  # fmt: skip


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_the_value_of_a_variable_that_is_named_like_a_secret_is_told_to_nobody(name: str) -> None:
    said = without_secrets(report(f"got {ENVIRONMENT[name]}!"), secret_values(ENVIRONMENT))
    assert said["exit"]["stderrTail"] == f"KeyError: got {HIDDEN}!\n"
    assert (said["problem"], said["stacks"]["text"], said["signs"][0]["text"]) == (f"got {HIDDEN}!",) * 3
    assert said["stepEnds"] == [{"task": 1, "stderrTail": f"got {HIDDEN}!"}]


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "LONGER_TOKEN"])
@pytest.mark.parametrize("lost", [1, 4, 8])
def test_what_is_left_of_a_secret_at_the_end_of_a_text_that_was_cut_is_told_to_nobody(name: str, lost: int) -> None:
    secret = ENVIRONMENT[name]
    told = report("")
    told["exit"]["stderrTail"] = f"{secret[lost:]} was not accepted"
    told["signs"][0]["text"] = f"not accepted: {secret[:-lost]}"
    said = without_secrets(told, secret_values(ENVIRONMENT))
    assert said["exit"]["stderrTail"] == f"{HIDDEN} was not accepted"
    assert said["signs"][0]["text"] == f"not accepted: {HIDDEN}"


def test_what_steers_is_left_as_it_is() -> None:
    told = report("hf_abcdefghijkl")
    assert without_secrets(told, secret_values(ENVIRONMENT))["newCheckpoints"] == told["newCheckpoints"]
    assert told["problem"] == "hf_abcdefghijkl", "the worker's own copy is not touched"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "true"),
        ("MAX_TOKENS", "2048"),
        ("TOKEN_FILE", "/anywhere/token"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/gcp/key"),
        ("SSH_AUTH_SOCK", "/agent/socket"),
        ("TLS_KEY", "/var/run/secrets/tls"),
        ("SIGNING_KEY", "/keys/signing.pem"),
        ("NCCL_DEBUG", "INFO-and-more"),
        ("KEYBOARD", "qwertyuiop"),
    ],
)
def test_ordinary_words_are_not_hidden(name: str, value: str) -> None:
    assert secret_values({name: value}) == ()
