"""What one cycle found to report to those who wait, for the next one to tell apart what is new."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.admission.cache.reported_reasons import ReportedReasons
from lockstep.core.admission.cache.run_index import RunRow
from support.admission import run


def in_queues(*queues: str) -> list[RunRow]:
    """Rows of these queues in this order."""
    rows = [RunRow(run(f"r{at}", 1, queue=queue)) for at, queue in enumerate(queues)]
    for at, row in enumerate(rows):
        row.order = (at,)
    return rows


def test_only_whose_position_is_another_is_numbered_anew() -> None:
    a, b, c, d = in_queues("x", "y", "x", "y")
    first, then, same, back = ReportedReasons(), ReportedReasons(), ReportedReasons(), ReportedReasons()
    assert first.set_order([a, b, c, d], (), ReportedReasons()) == {a: 1, b: 1, c: 2, d: 2}
    a.position, b.position, c.position, d.position = 1, 1, 2, 2
    assert same.set_order([a, b, c, d], (), first) == {}
    assert then.set_order([b, c, d], (), same) == {c: 1}  # nobody of the other queue
    c.position, a.order = 1, (9,)
    assert back.set_order([b, c, d, a], [a], then) == {a: 2}
    a.position = 2
    assert ReportedReasons().set_order([b, c, d, a], (), ReportedReasons()) == {
        b: 1,
        c: 1,
        d: 2,
        a: 2,
    }  # after a pass that told nobody


@given(
    st.lists(
        st.permutations(range(8)).flatmap(lambda order: st.sampled_from([order[:n] for n in range(9)])), max_size=6
    )
)
def test_positions_are_counted_by_queue_however_the_line_changes(lines: list[list[int]]) -> None:
    rows, before = in_queues(*"xyzxyzxy"), ReportedReasons()
    for order in lines:
        line, said, waited = [rows[number] for number in order], ReportedReasons(), {*before.line}
        for at, row in enumerate(line):
            row.order = (at,)
        positions = {row: [other for other in line if other.queue == row.queue].index(row) + 1 for row in line}
        numbered = said.set_order(line, rows, before)
        assert numbered.items() <= positions.items()
        assert {row for row in line if row not in waited or row.position != positions[row]} <= numbered.keys()
        for row, position in numbered.items():
            row.position = position
        before = said
