"""What the audit makes of the answers of its tools."""

import json

import pytest

import dependency_audit
from dependency_audit import Audit, main

pytestmark = pytest.mark.process

CONFIG = '{"config": {"scan_level": "package"}}'


def found(module: str, package: str = "") -> str:
    """A script that says what govulncheck says of a module that is required, or of a package of it that is used."""
    frame = {"module": module, "version": "v0.1.0"} | ({"package": package} if package else {})
    finding = {"finding": {"osv": "GO-2026-1", "fixed_version": "v0.2.0", "trace": [frame]}}
    return f"echo '{CONFIG}\n{json.dumps(finding, indent=2)}'"


ANSWERS = {
    "nothing is known against it": ("pip-audit", "echo 'No known vulnerabilities found' >&2", "clean"),
    "a package is vulnerable": ("pip-audit", "echo 'Name Version ID'; exit 1", "vulnerable"),
    "the database does not answer": ("pip-audit", "echo 'ConnectionError: pypi.org' >&2; exit 1", "unknown"),
    "an index knows no vulnerabilities": ("pip-audit", "echo 'x could not be audited: x (1.0)'", "unknown"),
    "a module is clean": ("govulncheck", f"echo '{CONFIG}'", "clean"),
    "a package is vulnerable that is used": ("govulncheck", found("golang.org/x/net", "http2"), "vulnerable"),
    "a module is required of which nothing is used": ("govulncheck", found("golang.org/x/net"), "clean"),
    "Go itself is old": ("govulncheck", found("stdlib", "net/http"), "clean"),
    "Go's database does not answer": ("govulncheck", "echo 'no such host' >&2; exit 1", "unknown"),
}


@pytest.mark.parametrize(("tool", "script", "verdict"), ANSWERS.values(), ids=ANSWERS)
def test_the_verdict_is_what_the_tool_says(tool: str, script: str, verdict: str) -> None:
    assert Audit("lock", tool, ("sh", "-c", script)).verdict()[0] == verdict


def test_what_is_found_in_a_package_is_told_with_its_remedy() -> None:
    _, words = Audit("lock", "govulncheck", ("sh", "-c", found("golang.org/x/net", "http2"))).verdict()
    assert words == "  golang.org/x/net v0.1.0: GO-2026-1 (fixed in v0.2.0)"


def test_what_is_known_against_a_tool_of_the_tests_is_told_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ("sh", "-c", found("golang.org/x/net", "http2"))
    made = Audit("e2e/tools/kind", "govulncheck", script, is_shipped=False)
    monkeypatch.setattr(dependency_audit, "audits", lambda folder: [made])
    assert main(["--required"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "e2e/tools/kind: vulnerable, in programs that only tests run"
    assert "GO-2026-1" in second


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
