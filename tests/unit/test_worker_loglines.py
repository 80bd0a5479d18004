"""Progress by the lines that known frameworks print."""

import pytest

from lockstep.worker.child.loglines import LogProgress

MEGATRON = b" [2024-05-01 10:00:00] iteration      120/   5000 | consumed samples: 122880 | lm loss: 2.310000E+00 | loss scale: 1.0 |\n"  # noqa: E501
MEGATRON_NAN = b" iteration       11/     100 | lm loss: nan | grad norm: nan |\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (MEGATRON, (120, "2.310000E+00", 5000)),
        (MEGATRON_NAN, (11, "nan", 100)),
        (b"[2024-05-01] [INFO] [logging.py:96:log_dist] [Rank 0] step=40, skipped=0, lr=[0.001], mom=[(0.9, 0.95)]\n",
         (40, "", None)),
        (b"\x1b[31mstep: 30  \x1b[32mloss:  8.1376  \x1b[33mgrad_norm:  0.9\x1b[39m\n", (30, "8.1376", None)),
        (b"{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.1, 'step': 50}\n", (50, "2.5", None)),
        (b"saved checkpoint step=100 to /x\n", None),
        (b"iteration 5/10 of the tokenizer\n", None),
        (b"{'eval_loss': 2.5}\n", None),
        (b"step 5\n", None),
        (b"step 10 loss 2.5\n", (10, "2.5", None)),
        (b"iter 100: loss 2.3123, time 23.40ms, mfu 12.3%\n", (100, "2.3123", None)),
        (b"2026-12-01 10:00:00 INFO Step=7/500 | train loss = 1e-3 | lr 0.1\n", (7, "1e-3", 500)),
        (b"[rank0] iteration 12 of 90, loss: nan\n", (12, "nan", 90)),
        (b"[step 10] loss 2.5\n", (10, "2.5", None)),
        (b"(Iter 10/90) - loss: 2.5\n", (10, "2.5", 90)),
        (b"step 10 | lr 1e-4 | loss 2.5\n", (10, "2.5", None)),
        (b"step=10, lr=1e-4, grad_norm=0.9, aux_loss=0.1, train_loss=2.5\n", (10, "2.5", None)),
        (b"step 10 | lr 1e-4 | val_loss 2.5\n", None),
        (b"step 10 | lr 1e-4 | saved | loss 2.5\n", None),
        (b"step 10] " + b"lr 1 " * 800 + b"loss 2.5\n", None),
        (b"epoch 2 step 10 loss 2.5\n", None),
        (b"step 250: train loss 1.9, val loss 2.2\n", None),
        (b"eval step 10 loss 2.5\n", None),
        (b"loss of step 10 is 2.5\n", None),
        (b"timestep 10 loss 2.5\n", None),
    ],
)  # fmt: skip
def test_a_line_of_a_framework_is_understood(line: bytes, expected: tuple[int, str, int | None] | None) -> None:
    log = LogProgress()
    log.feed(1, line[:20])
    log.feed(1, line[20:])
    assert [(p["step"], p["loss"], p["totalSteps"]) for p in log.drain()] == ([expected] if expected else [])
    assert log.drain() == []


def test_huggingface_loss_belongs_to_the_step_of_its_progress_bar() -> None:
    log = LogProgress()
    log.feed(1, b"{'loss': 9.9, 'epoch': 0.0}\n")
    log.feed(2, b"  1%|1         | 10/1000 [00:05<08:15,  2.00it/s]\r")
    log.feed(1, b"{'loss': 2.31, 'epoch': 0.01}\n")
    assert [(p["step"], p["loss"], p["totalSteps"]) for p in log.drain()] == [(10, "2.31", 1000)]


def test_who_writes_a_progress_file_is_not_looked_at() -> None:
    log = LogProgress()
    log.stop()
    log.feed(1, MEGATRON)
    assert log.drain() == []
