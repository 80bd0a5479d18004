"""module, which an image has none of."""

from lockstep.worker.shims.module import answer


def test_scripts_go_on_and_are_told_once() -> None:
    first = answer(["load", "cuda/12"], said_before=False)
    assert (first.code, first.out) == (0, "")
    assert first.err.startswith("module load cuda/12: does nothing here")
    assert answer(["load", "cuda/12"], said_before=True) == (0, "", "")
    assert "nothing to show" in answer(["avail"], said_before=False).err
