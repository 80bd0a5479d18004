"""docs/upgrade.md against the numbers that versions meet by."""

import re
from pathlib import Path

from lockstep.controller.workers import protocol
from lockstep.core.pods import plain_pods
from lockstep.worker.child import launch
from lockstep.worker.link import operator_link

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")


def test_the_page_names_the_protocol_that_both_sides_speak() -> None:
    assert protocol.PROTOCOL == operator_link.PROTOCOL
    assert f"**protocol {protocol.PROTOCOL}**, the only one" in PAGE


def test_the_page_names_the_contract_that_pods_with_and_without_a_worker_have() -> None:
    assert plain_pods.CONTRACT == launch.CONTRACT
    assert f"contract `{launch.CONTRACT}` (`LOCKSTEP_CONTRACT`)" in " ".join(PAGE.split())


def test_the_tests_that_hold_it_exist() -> None:
    named = re.findall(r"`((?:tests|e2e)/[\w/]+\.py)`", PAGE)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []
