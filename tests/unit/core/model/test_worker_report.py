"""What workers say of themselves."""

import msgspec
import pytest

from lockstep.core.model.worker_report import CheckpointReport, ExitReport


@pytest.mark.parametrize(
    ("code", "signal", "reason", "succeeded"),
    [
        (0, 0, "", True),
        (0, 0, "Completed", True),
        (0, 0, "StoppedOnRequest", False),
        (0, 0, "Fenced", False),
        (1, 0, "", False),
        (0, 9, "", False),
    ],
)
def test_a_rank_has_succeeded_when_it_ended_by_itself_with_code_0(
    code: int, signal: int, reason: str, succeeded: bool
) -> None:
    assert ExitReport(code=code, signal=signal, reason=reason).succeeded is succeeded


def test_numbers_beyond_what_the_struct_names_are_refused() -> None:
    report = {"tier": "shared", "step": 3, "path": "/c/a1/step-3", "verdict": "Valid", "bytes": -1}
    with pytest.raises(msgspec.ValidationError, match="bytes"):
        msgspec.convert(report, CheckpointReport)
