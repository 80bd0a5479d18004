"""What is asked of a node, on its way there."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.worker.steps.credentials import Peer, gang_of
from lockstep.worker.steps.frames import packed
from lockstep.worker.steps.request import AskedOfNode, RefusedError, TaskAsked, request_of
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


@pytest.mark.parametrize("change", [{"order": "0"}, {"order": "0-3"}, {"members": []}, {"order": "0-999999999"}])
def test_a_start_that_does_not_name_every_rank_is_not_used(change: dict[str, object]) -> None:
    start = {"attempt": 3, "members": [{"slots": "0-1,4", "incarnation": 1}], **change}
    with pytest.raises((ValueError, KeyError)):
        gang_of("u", 0, start, ["a", "b", "c"], [1, 2, 3])
