"""docs/security.md and docs/threat-model.md against the code."""

import re
from pathlib import Path

import pytest

from lockstep.controller.runtime import ratelimit
from lockstep.controller.web import access, strangers
from lockstep.controller.workers import api, connections, listener, protocol, reports, trust
from lockstep.core.pods import pod_policy

ROOT = Path(__file__).parents[3]
SECURITY = (ROOT / "docs/security.md").read_text()
WEB = (ROOT / "docs/web.md").read_text()
MODEL = (ROOT / "docs/threat-model.md").read_text()
PLACES = re.split(r"^### ", MODEL.partition("\n## Attacks\n")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]
ATTACKS = [row for place in PLACES for row in re.findall(r"^\| (?!Attack \|)[^\n]*", place, re.MULTILINE)]


def named_tests(text: str) -> set[str]:
    """By their files, with as much of the path as it takes."""
    return set(re.findall(r"`((?:\w+/)*test_\w+)`", text))


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row[2:50])
def test_every_defence_names_the_test_that_attacks_it(row: str) -> None:
    _, what, defence, test, _ = re.split(r"(?<!\\)\|", row)
    assert what.strip()
    assert defence.strip()
    assert named_tests(test)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.partition("\n")[0])
def test_every_place_that_an_attack_comes_from_names_tests(place: str) -> None:
    assert named_tests(place)


def test_the_tests_that_are_named_exist() -> None:
    there = [str(path.with_suffix("")) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(ATTACKS) > 20
    assert [name for name in named_tests(MODEL) if not any(path.endswith(f"/{name}") for path in there)] == []


@pytest.mark.parametrize(
    "said",
    [
        f"{connections.UNPROVEN:,}",
        f"{connections.PROVE_SECONDS:.0f} s each, {listener.HANDSHAKE_SECONDS:.0f} s for the handshake",
        f"| Bytes received on them | {connections.UNPROVEN_BYTES >> 20} MiB together",
        f"| Head of a request | {listener.HEAD_BYTES >> 10} KiB, {listener.MAX_HEADERS} headers of 8 KiB at most",
        f"| Connections of one pod | {connections.PER_SENDER} |",
        f"{protocol.REGISTER_LIMIT >> 20} MiB at registration, {protocol.REPORT_LIMIT >> 10} KiB a report",
        f"{api.BODIES_ROOM >> 20} MiB of all senders",
        (
            f"{api.REQUEST_SECONDS:.0f} s until a request is received and its sender known; "
            f"polls {protocol.MAX_WAIT:.0f} s"
        ),
        (
            f"{trust.REVIEWS_PER_POD:.0f} for a pod from one address (of IPv6 its /64), then one a second; "
            f"{trust.CONCURRENT_REVIEWS} reviews under way"
        ),
        (
            f"{reports.ROWS_PER_TIER} checkpoints a tier with {reports.TEXT_PER_TIER >> 10} KiB of text, "
            f"{protocol.MAX_VERIFIED} answers, {protocol.MAX_SIGNS} signs, {protocol.MAX_STEP_ENDS} ends of steps with "
            f"{protocol.STEP_STDERR >> 10} KiB of stderr each, {protocol.STDERR_TAIL >> 10} KiB of stderr, "
            f"{protocol.STACKS >> 10} KiB of stacks"
        ),
    ],
)
def test_the_limits_are_those_of_the_code(said: str) -> None:
    assert said in SECURITY


def test_the_pace_is_that_of_the_code() -> None:
    usual = ratelimit.RateLimit.__init__.__kwdefaults__
    assert f"{usual['per_second']:.0f} requests a second for a pod, {usual['burst']:.0f} at once" in SECURITY


@pytest.mark.parametrize(
    "said",
    [
        f"at most {access.CONCURRENT_REVIEWS} at once",
        (
            f"{strangers.EACH_PER_SECOND:.0f} unknown tokens a second, {strangers.EACH_BURST:.0f} at once; "
            f"{strangers.MOST_PENDING_EACH} whose review has not ended"
        ),
        f"{strangers.ALL_PER_SECOND:.0f} unknown tokens a second, {strangers.ALL_BURST:.0f} at once",
        (
            f"beside that {strangers.SELDOM_PER_SECOND:.0f} a second, {strangers.SELDOM_BURST:.0f} at once, for "
            f"addresses with no more than {strangers.FEW:.0f} in a minute"
        ),
        f"{strangers.MOST_PENDING} whose review has not ended, {strangers.AT_ONCE} of them under review",
        f"the last {access.MOST_TOKENS} tokens that were accepted",
        f"{access.MOST_REFUSED} tokens that were refused, and {strangers.MOST_ADDRESSES} addresses",
    ],
)
def test_the_limits_of_the_page_are_those_of_the_code(said: str) -> None:
    assert said in WEB


def test_everything_that_a_policy_may_allow_is_in_the_table() -> None:
    configuration = (ROOT / "docs/configuration.md").read_text()
    for name in pod_policy.PodPolicy.model_fields:
        alias = re.sub(r"_(\w)", lambda match: match[1].upper(), name)
        assert f"| `{alias}` |" in configuration
