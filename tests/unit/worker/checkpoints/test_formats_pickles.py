"""The step in a pickle is that of the run and not an optimizer's, and no pickle is too odd to be read."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.worker.checkpoints.formats import pickles
from lockstep.worker.checkpoints.formats.pickles import first_number

KEYS = ("global_step", "step")
ADAM = {"state": {0: {"step": 75, "exp_avg": b"x"}}, "param_groups": [{"lr": 0.1, "params": [0]}]}


class Tensor:
    """Anything that is made by a call, and has a state of its own."""

    def __reduce__(self) -> Any:
        return collections.Counter, ({"step": 9},), {"step": 8}


def weights() -> Any:
    named = collections.OrderedDict(step=Tensor())
    named["_metadata"] = collections.OrderedDict()
    return named


STATES: dict[str, tuple[Any, int | None]] = {
    "behind an optimizer that has steps": ({"model": weights(), "optimizer": ADAM, "step": 300}, 300),
    "before it": ({"step": 300, "optimizer": ADAM}, 300),
    "by the first key that has one": ({"step": 3, "global_step": 300}, 300),
    "beyond what no byte or two hold": ({"step": 2**40}, 2**40),
    "in a dictionary within": ({"trainer": {"global_step": 300}, "optimizer": ADAM}, 300),
    "none but the optimizer's": ({"optimizer": ADAM, "epoch": 3}, None),
    "a tensor": ({"step": Tensor()}, None),
    "true": ({"step": True}, None),
    "below zero": ({"step": -3}, None),
    "no dictionary": ([{"step": 3}], None),
    "an ordered one": (collections.OrderedDict(step=300), 300),
    "one in itself": ((loop := {"optimizer": ADAM}, loop.update(own=loop))[0], None),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("case", STATES)
def test_the_step_is_that_of_the_outermost_dictionary_that_has_one(case: str, protocol: int) -> None:
    state, step = STATES[case]
    assert first_number(pickle.dumps(state, protocol), KEYS) == step


@pytest.mark.parametrize(
    "pickled",
    [b"", b"\x80", b".", b"\x80\x02}", b"(.", b"u.", b"R.", b"r\xff\xff\xff\xff.", b"h\x07.", b"d.", b"PK\x03\x04"],
)
def test_what_is_no_pickle_has_none(pickled: bytes) -> None:
    assert first_number(pickled, KEYS) is None


@given(st.binary(max_size=60))
def test_no_bytes_are_too_odd(pickled: bytes) -> None:
    number = first_number(pickled, KEYS)
    assert number is None or number >= 0


def test_a_pickle_of_very_many_parts_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_OPCODES", 100)
    assert first_number(pickle.dumps({"rest": list(range(300)), "step": 3}), KEYS) is None
