"""Progress by the lines that known frameworks print."""

import io
import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.worker.child import loglines, pattern_matching
from lockstep.worker.child.loglines import LogProgress
from lockstep.worker.child.signs import Signs
from lockstep.worker.settings import JSON
from support.stepping import until

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


# The run's own pattern

PATTERN = r"at (?P<step>\d+)(?: of (?P<total>\d+))?, error (?P<loss>\S+)"


def told_of(monkeypatch: pytest.MonkeyPatch, lines: bytes, *rules: JSON) -> list[JSON]:
    """What the process that matches patterns would answer."""
    sink = io.StringIO()
    source = SimpleNamespace(buffer=io.BytesIO(json.dumps(rules).encode() + b"\n" + lines))
    monkeypatch.setattr(pattern_matching, "sys", SimpleNamespace(stdin=source, stdout=sink))
    before = signal.getsignal(signal.SIGVTALRM)
    try:
        pattern_matching.main()
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_each_line_that_fits_the_runs_pattern_is_told_with_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"1.5 at 10 of 90, error 2.5\n2.5 nothing\n3.5 x at 11, error nan\n"
    assert told_of(monkeypatch, lines, {"name": "", "pattern": PATTERN, "steps": True}) == [
        {"at": 1.5, "step": "10", "loss": "2.5", "total": "90"},
        {"at": 3.5, "step": "11", "loss": "nan", "total": ""},
    ]
    long = b"1.5 at " + b"1" * 999 + b", error x\n"
    (told,) = told_of(monkeypatch, long, {"name": "", "pattern": PATTERN, "steps": True})
    assert len(told["step"]) == pattern_matching.MAX_VALUE


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(?P<step", "spec.progress.pattern is not understood: missing >, unterminated name at position 4"),
        ("[(?P<step>]", "spec.progress.pattern has no group (?P<step>…)"),
    ],
)
def test_a_pattern_that_finds_no_step_is_said_and_a_rule_goes_on(
    monkeypatch: pytest.MonkeyPatch, pattern: str, problem: str
) -> None:
    rules = [{"name": "", "pattern": pattern, "steps": True}, {"name": "mine", "pattern": "x"}]
    assert told_of(monkeypatch, b"1.5 x\n2.5 x\n", *rules) == [
        {"problem": problem},
        {"name": "mine", "at": 1.5, "text": "x"},
    ]


class Matcher:
    """Takes the place of the process: keeps what it is fed."""

    def __init__(self, signs: Signs, rules: list[JSON], take_step: object) -> None:
        self.rules, self.take_step, self.fed, self.pid = rules, take_step, list[bytes](), 7

    def feed(self, at: float, line: bytes) -> None:
        self.fed.append(line)

    def finish(self, timeout: float) -> None:
        self.fed.append(b"<finished>")


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> tuple[LogProgress, Matcher]:
    monkeypatch.setattr(loglines, "RuleMatcher", Matcher)
    log = LogProgress()
    log.look_for(PATTERN, Signs())
    assert isinstance(log._matcher, Matcher)
    return log, log._matcher


def test_with_a_pattern_all_lines_of_both_streams_are_held_against_it_and_no_known_form_counts(
    matched: tuple[LogProgress, Matcher],
) -> None:
    log, matcher = matched
    assert matcher.rules == [{"name": "", "pattern": PATTERN, "steps": True}]
    log.feed(1, MEGATRON + b"\x1b[31mat 1")
    log.feed(2, b"on stderr\rand again\n\n" + b"y" * 9000 + b"\n")
    log.feed(1, b"0, error 2\nthe la")
    log.finish()
    assert matcher.fed == [
        MEGATRON[:-1],
        b"on stderr",
        b"and again",
        b"y" * loglines.MAX_LINE,
        b"at 10, error 2",
        b"the la",
        b"<finished>",
    ]
    assert log.drain() == []


def test_what_fits_a_pattern_is_progress_of_the_time_at_which_the_line_came(
    matched: tuple[LogProgress, Matcher],
) -> None:
    log, _ = matched
    for step, loss, total in (("10", "2.5", "90"), ("11", "", ""), ("ten", "", ""), ("-1", "", ""), ("9" * 32, "", "")):
        log._take_match({"at": 5.5, "step": step, "loss": loss, "total": total})
    assert log.drain() == [
        {"step": 10, "at": 5.5, "loss": "2.5", "totalSteps": 90},
        {"step": 11, "at": 5.5, "loss": "", "totalSteps": None},
    ]


def test_a_pattern_is_not_looked_for_where_a_progress_file_is_written(matched: tuple[LogProgress, Matcher]) -> None:
    log, matcher = matched
    log.stop()
    log.feed(1, b"at 10, error 2\n")
    assert matcher.fed == []


@pytest.mark.process
def test_a_process_of_its_own_matches_the_pattern_and_ends_with_the_program() -> None:
    log, signs = LogProgress(), Signs()
    log.look_for(PATTERN, signs)
    log.feed(1, b"at 10 of 90, error 2.5\n")
    found: list[JSON] = []
    until(lambda: bool(found.extend(log.drain()) or found))
    log.feed(2, b"at 11 of 90, error 2.25")
    log.finish()
    assert [(each["step"], each["loss"], each["totalSteps"]) for each in [*found, *log.drain()]] == [
        (10, "2.5", 90),
        (11, "2.25", 90),
    ]
    assert not Path(f"/proc/{log.helper}/fd").exists()
    assert signs.report() == []
