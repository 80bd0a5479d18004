"""Counting what runs hold: only what changed is counted anew, and the sums are those of counting all."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.names import ANNOTATION_TEST_ONLY, ANNOTATION_USER
from lockstep.controller.store.usage_index import UsageIndex
from lockstep.core.admission.queueing.fair_share import ChargedUsage
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only
from support.admission import ACCEPTED, FINISHED, held, run


def view(number: int, nodes: int, queue: str, user: str, asks: bool, over: bool) -> RunView:
    """One of six runs: with nodes, waiting, over, or asking when it would start."""
    name = f"r{number}"
    status = held(*(f"{name}-{node}" for node in range(nodes))) if nodes and not asks else {}
    status |= {"conditions": (ACCEPTED, FINISHED)} if over and not asks else {}
    annotations = {ANNOTATION_USER: user} | ({ANNOTATION_TEST_ONLY: "true"} if asks else {})
    return replace(run(name, status=status, queue=queue), annotations=annotations)


views = st.builds(
    view,
    st.integers(0, 5),
    st.integers(0, 3),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "ada"]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(st.lists(views, max_size=8, unique_by=lambda view: view.uid), max_size=6))
def test_it_comes_to_the_same_as_counting_all_runs(passes: list[list[RunView]]) -> None:
    usage_index = UsageIndex()
    for runs in passes:
        usage_index.update(runs)
        everybody = ChargedUsage.from_runs(runs)
        assert usage_index.held.nodes == {key: count for key, count in everybody.nodes.items() if count}
        assert usage_index.held.gpus == {queue: count for queue, count in everybody.gpus.items() if count}
        assert usage_index.present == {
            share_key(each) for each in runs if not is_test_only(each) and FINISHED not in each.status.conditions
        }
        assert usage_index.asking == {share_key(each) for each in runs if is_test_only(each)}
