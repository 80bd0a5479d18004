"""How far the child is, by the lines that known frameworks print, or that fit the run's own pattern: for programs that
write no progress file."""

from __future__ import annotations

import re
import threading
import time
from typing import List, Optional, Sequence, Tuple, Union

from lockstep.worker.child.progress import progress_of
from lockstep.worker.child.sign_words import MAX_LINE
from lockstep.worker.child.signs import LAST_LOOK_SECONDS, RuleMatcher, Signs
from lockstep.worker.settings import JSON

_VALUE = rb"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Inf)"
_NUMBER = rb"(" + _VALUE + rb")"

# Each: a word that the line must hold, the step (and the total) in a form that nothing else prints, the loss.
_FORMATS: Sequence[Tuple[bytes, "re.Pattern[bytes]", "re.Pattern[bytes]"]] = (
    # Megatron-LM: " iteration      120/   5000 | consumed samples: … | lm loss: 2.310000E+00 | …"
    (b"iteration", re.compile(rb"\biteration\s+(\d+)/\s*(\d+) \|"), re.compile(rb"\bloss:\s*" + _NUMBER)),
    # DeepSpeed: "step=120, skipped=0, lr=[…], mom=[…]", with a loss where the program adds one
    (b"step=", re.compile(rb"\bstep=(\d+), skipped=()"), re.compile(rb"\bloss=\s*" + _NUMBER)),
    # torchtitan: "step: 120  loss:  2.3100  grad_norm: …"
    (b"step:", re.compile(rb"\bstep:\s*(\d+)\s+loss:()"), re.compile(rb"\bloss:\s*" + _NUMBER)),
    # HuggingFace Trainer with a callback that adds the step: "{'loss': 2.31, …, 'step': 120}"
    (b"'loss'", re.compile(rb"^\{.*'(?:global_)?step': '?(\d+)()"), re.compile(rb"'loss': '?" + _NUMBER)),
)  # fmt: skip
# Programs of no framework: "step 120/5000 loss 2.31", "[iter 120] loss 2.31", "Step=120 | lr 1e-4 | train loss = 2.31"
_BETWEEN = rb"[\s,:;|\])-]{1,8}"
_PLAIN = re.compile(
    rb"\b(?:step|iter|iteration)[ :=#]{1,3}(\d+)(?: ?(?:/|of) ?(\d+))?" + _BETWEEN
    + rb"(?:[a-z]\w{0,23}[ :=]{1,3}" + _VALUE + _BETWEEN + rb"){0,4}(?:train(?:ing)?[ _])?loss[ :=]{1,3}" + _NUMBER,
    re.IGNORECASE,
)  # fmt: skip
# Steps of an evaluation, or that begin anew with each epoch, are not those of the training.
_OTHER_STEPS = re.compile(rb"\b(?:epoch|eval|val|valid|test)", re.IGNORECASE)
# HuggingFace Trainer prints no step beside the loss; its progress bar, on stderr, does: " 12%|█▏  | 120/1000 [00:…"
_BAR = re.compile(rb"\|\s*(\d+)/(\d+) \[[0-9:]+<")
_BARE_LOSS = re.compile(rb"^\{'loss': '?" + _NUMBER)
_WORDS = (*(word for word, _, _ in _FORMATS), b"%|", b"loss", b"Loss")
Text = Union[bytes, str]
_ANSI = re.compile(rb"\x1b\[[0-9;]*m")


class LogProgress:
    """Fed with the output as it comes, by the threads that pass it on; cheap on lines that tell nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partial = {1: b"", 2: b""}
        self._bar: Tuple[int, int] = (0, 0)
        self._newest: List[JSON] = []
        self._silent = False
        self._matcher: Optional[RuleMatcher] = None

    def look_for(self, pattern: str, signs: Signs) -> None:
        """Only for this regular expression, by a process of its own. ``signs`` get what is wrong with it."""
        rule = {"name": "", "pattern": pattern, "steps": True}
        self._matcher = RuleMatcher(signs, [rule], self._take_match)

    @property
    def helper(self) -> int:
        """PID of the process that matches the pattern, or 0."""
        return self._matcher.pid if self._matcher else 0

    def finish(self) -> None:
        """Look at what is left, bounded; afterwards there is no process."""
        if self._matcher is not None:
            self._match(list(self._partial.values()))
            self._matcher.finish(LAST_LOOK_SECONDS)

    def feed(self, stream: int, data: bytes) -> None:
        """Bytes of stdout (1) or stderr (2)."""
        if self._silent:
            return
        text = self._partial[stream] + data.replace(b"\r", b"\n")
        looked_at = self._matcher is not None or any(word in text for word in _WORDS)
        lines = text.split(b"\n") if looked_at else [text[text.rfind(b"\n") + 1 :]]
        self._partial[stream] = lines.pop()[-MAX_LINE:]
        if self._matcher is not None:
            self._match(lines)
            return
        for line in lines:
            if any(word in line for word in _WORDS):
                self._take(self._progress_in(_ANSI.sub(b"", line[:MAX_LINE])))

    def _match(self, lines: List[bytes]) -> None:
        at = time.time()
        for line in filter(None, lines):
            if self._matcher is not None:
                self._matcher.feed(at, _ANSI.sub(b"", line[:MAX_LINE]))

    def _take_match(self, told: JSON) -> None:
        self._take(_progress(told["step"], told["loss"] or None, told["total"], told["at"]))

    def _take(self, progress: Optional[JSON]) -> None:
        if progress is not None:
            with self._lock:
                self._newest = [*self._newest[-255:], progress]

    def drain(self) -> List[JSON]:
        """What was found since the last call, oldest first."""
        with self._lock:
            found, self._newest = self._newest, []
        return found

    def stop(self) -> None:
        """Look no more: the program tells of its progress by itself."""
        self._silent = True

    def _progress_in(self, line: bytes) -> Optional[JSON]:
        for word, step, loss in _FORMATS:
            at_step = step.search(line) if word in line else None
            if at_step is not None:
                at_loss = loss.search(line)
                return _progress(at_step.group(1), at_loss and at_loss.group(1), at_step.group(2))
        bar = _BAR.search(line)
        if bar is not None:
            self._bar = (int(bar.group(1)), int(bar.group(2)))
        bare = _BARE_LOSS.search(line)
        if bare is not None and self._bar[0]:
            return _progress(b"%d" % self._bar[0], bare.group(1), b"%d" % self._bar[1])
        plain = _PLAIN.search(line)
        if plain is not None and _OTHER_STEPS.search(line) is None:
            return _progress(plain.group(1), plain.group(3), plain.group(2) or b"")
        return None


def _progress(step: Text, loss: Optional[Text], total: Text, at: Optional[float] = None) -> Optional[JSON]:
    try:
        words = loss.decode("ascii") if isinstance(loss, bytes) else loss
        return progress_of(step, words, total or None, time.time() if at is None else at)
    except (ValueError, TypeError, OverflowError):
        return None
