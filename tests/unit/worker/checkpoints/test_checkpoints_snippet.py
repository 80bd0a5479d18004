"""The code that docs/checkpoints.md tells users to copy, run as it stands and judged as the worker judges."""

import pickle
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lockstep.worker.checkpoints.formats import verify_checkpoint
from lockstep.worker.checkpoints.tiers import scan_tier

DOCS = Path(__file__).parents[4] / "docs" / "checkpoints.md"


@pytest.fixture
def one_rank_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The four functions of torch that the snippet calls, for a gang of one rank."""

    def all_gather_object(entries: list[Any], entry: Any) -> None:
        entries[:] = [entry]

    torch, distributed = ModuleType("torch"), ModuleType("torch.distributed")
    torch.save = pickle.dump  # type: ignore[attr-defined]
    torch.distributed = distributed  # type: ignore[attr-defined]
    distributed.get_rank = lambda: 0  # type: ignore[attr-defined]
    distributed.get_world_size = lambda: 1  # type: ignore[attr-defined]
    distributed.all_gather_object = all_gather_object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)


@pytest.mark.usefixtures("one_rank_torch")
def test_a_checkpoint_saved_as_the_documentation_says_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    attempt = tmp_path / "uid-of-run" / "a2"
    monkeypatch.setenv("LOCKSTEP_CHECKPOINT_DIR", str(attempt))
    monkeypatch.setenv("LOCKSTEP_RUN_UID", "uid-of-run")
    monkeypatch.setenv("LOCKSTEP_ATTEMPT", "2")
    monkeypatch.setenv("LOCKSTEP_NNODES", "1")

    namespace: dict[str, Any] = {}
    exec(snippet, namespace)
    namespace["save"]({"weights": [1.0, 2.0]}, 300)

    (row,) = scan_tier("shared", str(tmp_path), "uid-of-run")
    assert (row["verdict"], row["step"], row["attempt"], row["world"]) == ("Valid", 300, 2, 1), row["reason"]
    assert verify_checkpoint(row["path"], run_uid="uid-of-run") == ("Valid", "")
