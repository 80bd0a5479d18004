"""What is asked of a node, on its way there."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from lockstep.controller.workers.orders import Orders, encode_reply
from lockstep.controller.workers.step_certificates import StepIdentity
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.worker.steps.credentials import Peer, gang_of, names_of, write_credentials
from lockstep.worker.steps.frames import packed
from lockstep.worker.steps.request import AskedOfNode, RefusedError, TaskAsked, request_of
from lockstep.worker.steps.shimmed import here
from support.examples import examples

texts = st.text(st.characters(exclude_characters="\0"))
names = st.text(st.characters(exclude_characters="\0="), min_size=1)
environments = st.dictionaries(names, texts, max_size=3)
tasks = st.builds(
    TaskAsked, st.integers(0, 1 << 31), environments, st.booleans(), texts, texts, texts, st.booleans(),
    st.just("") | names,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (" orted -mca ess env", "orted"),
        ("PATH=/x:$PATH ; export PATH ; LIBRARIES=/x:${LIBRARIES:-} ; export LIBRARIES ; /x/bin/orted -m", "orted"),
        ("PRTE_PREFIX=/x;export PRTE_PREFIX;PMIX_PREFIX=/x;export PMIX_PREFIX;/x/bin/prted --prtemca a b", "prted"),
        ('"/x/bin/hydra_pmi_proxy" --control-port a:1', "hydra_pmi_proxy"),
        ("export A=1; export B=2;  cd /data; python train.py", "cd"),
        ("", "sh"),
        ("A=1", "A=1"),
    ],
)  # fmt: skip
def test_the_program_in_shell_text_is_named_without_the_variables_before_it(text: str, program: str) -> None:
    assert AskedOfNode("s", 0, [TaskAsked(0)], shell=text).program == program


@pytest.mark.slow
@given(
    st.builds(
        AskedOfNode, texts.map(lambda text: text[:64]), st.integers(0, 9),
        st.lists(tasks, min_size=1, max_size=3, unique_by=lambda task: task.identity),
        argv=st.lists(texts, min_size=1, max_size=3).filter(lambda argv: bool(argv[0])),
        environment=st.none() | environments, unset=st.lists(texts, max_size=2), directory=st.none() | texts,
        stdin=st.booleans(), grace=st.floats(0, 3600), sweep=st.booleans(), shell=st.none(),
    )
)  # fmt: skip
@settings(max_examples=examples(100))
def test_what_is_asked_arrives_as_it_was_said(request: AskedOfNode) -> None:
    assert request_of(json.loads(packed(request.header()))) == request


FIELDS = st.sampled_from(["version", "step", "rank", "tasks", "argv", "shell", "env", "id", "grace", "cwd"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner),
)


@given(anything)
@settings(max_examples=examples(200))
def test_whatever_is_said_is_understood_or_refused(said: object) -> None:
    header = {
        **AskedOfNode("s", 0, [TaskAsked(0)], ("true",)).header(),
        **(said if isinstance(said, dict) else {"tasks": said}),
    }
    try:
        request_of(header)
    except RefusedError:
        return


def test_who_the_ranks_are_is_read_off_start() -> None:
    start = {"attempt": 3, "members": [{"slots": "0-1,4", "incarnation": 1}, {"slots": "3", "incarnation": 7}]}
    addresses, ports = ["a", "b", "c", "d"], [1, 2, 3, 4]
    plain = gang_of("u", 2, start, addresses, ports)
    assert plain.peers[2:] == [Peer("c", 3, 3, 7), Peer("d", 4, 4, 1)]
    ordered = gang_of("u", 2, {**start, "order": "3-4,0-1"}, addresses, ports)
    assert [peer.slot for peer in ordered.peers] == [3, 4, 0, 1]
    assert ordered.identity(0) == "lockstep://run/u/attempt/3/slot/3/incarnation/7"


def test_a_word_means_a_node_by_its_name_in_kubernetes_wherever_in_the_gang_it_is_said(tmp_path: Path) -> None:
    start = {"attempt": 1, "members": [{"slots": "0-2", "incarnation": 1}]}
    names = ["gpu-a1.example.org", "gpu-b7.example.org", "gpu-c1.example.org"]
    gang = gang_of("u", 1, start, ["10.0.0.1", "10.0.0.2", "10.0.0.3"], [1, 2, 3], told_names(names))
    write_credentials(str(tmp_path / "steps"), gang, "ca", "certificate", "key")
    at = here({"LOCKSTEP_STEPS_DIR": str(tmp_path / "steps")})
    words = ["gpu-a1", "GPU-A1.example.org", "gpu-c1.example.org", "10.0.0.3", "localhost", "gpu-d1"]
    assert [at.targets.rank_of(word) for word in words] == [0, 0, 2, 2, 1, None]
    assert at.targets.rank_of(os.uname().nodename) == 1, "what a pod calls itself"


def told_names(nodes: Sequence[str]) -> dict[str, str]:
    """As START has them."""
    directive = Directive(1, DesiredPhase.RUN, (1,), (0,), step_ports=(1,), step_nodes=tuple(nodes))
    identity = StepIdentity(Raw(b'"ca"'), "certificate", "key")
    told = encode_reply(
        Orders(directive, 1), slot=0, incarnation=1, attempt=0, epoch=(1, 1), now=1.0, heartbeat_seconds=1.0,
        fence_seconds=1.0, identity=identity,
    )  # fmt: skip
    return dict(json.loads(told)["steps"]["names"])


@given(st.lists(st.text("ab-.", max_size=6), min_size=1, max_size=5))
@settings(max_examples=examples(200))
@example(["gpu-1"])
@example(["gpu-1", "gpu-1"])
@example(["aba", "abababa"])
@example(["", "gpu-1"])
@example([""])
def test_names_arrive_as_they_were_sent(names: list[str]) -> None:
    assert list(names_of(told_names(names), len(names))) == names


def test_the_names_of_a_very_large_gang_take_little_more_than_what_tells_them_apart() -> None:
    nodes = [f"ip-10-{at // 256}-{at % 256}-7.eu-central-1.compute.internal" for at in range(16_384)]
    assert len(json.dumps(told_names(nodes))) < 160_000


@pytest.mark.parametrize(
    "said", [{"head": "n", "tail": "", "rest": "1,2"}, {"head": "n"}, {"head": 1, "tail": "", "rest": "1,2,3"}, []]
)
def test_names_that_are_not_of_every_rank_are_not_used(said: object) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        names_of(said, 3)


def test_a_start_without_names_has_none() -> None:
    assert names_of(None, 3) == []


@pytest.mark.parametrize("change", [{"order": "0"}, {"order": "0-3"}, {"members": []}, {"order": "0-999999999"}])
def test_a_start_that_does_not_name_every_rank_is_not_used(change: dict[str, object]) -> None:
    start = {"attempt": 3, "members": [{"slots": "0-1,4", "incarnation": 1}], **change}
    with pytest.raises((ValueError, KeyError)):
        gang_of("u", 0, start, ["a", "b", "c"], [1, 2, 3])
