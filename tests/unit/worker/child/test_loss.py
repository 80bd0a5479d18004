"""When a loss counts as having jumped."""

import itertools

import pytest

from lockstep.worker.child.loss import Jump, LossWatch


def told(losses: list[float]) -> list[tuple[int, Jump]]:
    """Places in ``losses`` at which a jump was told of; each is 500 steps after the one before."""
    watch = LossWatch()
    seen = [(place, watch.seen(500 * place, loss)) for place, loss in enumerate(losses)]
    return [(place, jump) for place, jump in seen if jump is not None]


def noisy(count: int, level: float = 2.0) -> list[float]:
    return [level + swing for swing, _ in zip(itertools.cycle([0.0, 0.05, -0.04, 0.02]), range(count), strict=False)]


def test_a_jump_that_stays_is_told_of_once_with_the_step_at_which_it_began() -> None:
    ((place, jump),) = told(noisy(30) + [9.0] * 10)
    assert (place, jump.step) == (32, 15_000)
    assert "loss 9, the last of 3 in a row; usual are 2.01" in jump.words


def test_a_single_bad_batch_is_not_where_a_later_jump_began() -> None:
    ((_, jump),) = told([*noisy(30), 9.0, *noisy(9), 9.0, 9.0, 9.0])
    assert jump.step == 20_000


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([*noisy(30), 9.0, 9.0, *noisy(30)], id="two bad batches"),
        pytest.param([9.0, 2.0, 8.0, 1.0, *noisy(10), 9.0, 9.0, 9.0], id="too few to know what is usual"),
        pytest.param([10 - step / 10 for step in range(80)], id="a falling loss"),
        pytest.param([2.0] * 30 + [2.1] * 10, id="a small move of a loss that never moved"),
        pytest.param([*noisy(30), 0.1, 0.1, 0.1], id="a jump downwards"),
    ],
)
def test_what_is_no_jump(losses: list[float]) -> None:
    assert told(losses) == []
