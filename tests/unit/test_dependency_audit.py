"""What the audit makes of the answers of its tools."""

import pytest

import dependency_audit
from dependency_audit import Audit, main

ANSWERS = {
    "nothing is known against it": ("pip-audit", "echo 'No known vulnerabilities found' >&2", "clean"),
    "a package is vulnerable": ("pip-audit", "echo 'Name Version ID'; exit 1", "vulnerable"),
    "the database does not answer": ("pip-audit", "echo 'ConnectionError: pypi.org' >&2; exit 1", "unknown"),
    "an index knows no vulnerabilities": ("pip-audit", "echo 'x could not be audited: x (1.0)'", "unknown"),
    "a module is clean": ("govulncheck", "echo 'No vulnerabilities found.'", "clean"),
    "a module is vulnerable": ("govulncheck", "echo 'GO-2026-1'; echo 'exit status 3' >&2; exit 1", "vulnerable"),
    "Go's database does not answer": ("govulncheck", "echo 'no such host' >&2; exit 1", "unknown"),
}


@pytest.mark.parametrize(("tool", "script", "verdict"), ANSWERS.values(), ids=ANSWERS)
def test_the_verdict_is_what_the_tool_says(tool: str, script: str, verdict: str) -> None:
    assert Audit("lock", tool, ("sh", "-c", script)).verdict()[0] == verdict


def test_a_tool_that_is_not_there_is_no_find() -> None:
    assert Audit("lock", "pip-audit", ("no-such-program",)).verdict()[0] == "unknown"


@pytest.mark.parametrize(
    ("verdicts", "arguments", "code"),
    [
        (["clean"], [], 0),
        (["clean", "vulnerable", "unknown"], [], 1),
        (["clean", "unknown"], [], 0),
        (["clean", "unknown"], ["--required"], 2),
    ],
)
def test_what_was_not_looked_at_fails_the_audit_only_when_it_is_required(
    verdicts: list[str], arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {verdict: script for tool, script, verdict in ANSWERS.values() if tool == "pip-audit"}
    made = [Audit(verdict, "pip-audit", ("sh", "-c", scripts[verdict])) for verdict in verdicts]
    monkeypatch.setattr(dependency_audit, "audits", lambda folder: made)
    assert main(arguments) == code


@pytest.mark.parametrize("arguments", [[], ["--required"]])
def test_what_was_not_looked_at_is_said_last_whether_it_fails_the_audit_or_not(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = {"uv.lock": "echo 'no such host' >&2; exit 1", "e2e/tools/kind": "true"}
    made = [Audit(of, "pip-audit", ("sh", "-c", script)) for of, script in scripts.items()]
    monkeypatch.setattr(dependency_audit, "audits", lambda folder: made)
    main(arguments)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("NOT AUDITED: uv.lock (1 of 2); ")
    assert ("so the audit fails" in last) == bool(arguments)


def test_an_audit_of_everything_says_nothing_of_what_was_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dependency_audit, "audits", lambda folder: [Audit("uv.lock", "pip-audit", ("true",))])
    assert main([]) == 0
    assert "NOT AUDITED" not in capsys.readouterr().out
