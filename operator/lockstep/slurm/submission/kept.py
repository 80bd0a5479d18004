"""What of a value is not kept, of options that are otherwise: each in words, beside what becomes of the option."""

from __future__ import annotations

from typing import List, Mapping, Optional, Tuple

from lockstep.slurm.signals import Notice


def not_kept(
    said: Mapping[str, str], switches: Optional[int], wait: Optional[int], signal: Optional[Notice]
) -> List[Tuple[str, str]]:
    """(option, words). ``said``: options as typed; the others are what was read of them."""
    near = [name for name in ("contiguous", "switches", "segment") if name in said]
    rows = [(name, f"has no effect beside --{near[0]}") for name in near[1:]]
    if near[:1] == ["segment"]:
        words = "its nodes are sought in as few racks as may be, and not in segments of so many"
        rows.append(("segment", words))
    if near[:1] == ["switches"] and switches is not None and (switches > 1 or wait is not None):
        words = "one rack is preferred, and as few as may be taken; it waits for none"
        rows.append(("switches", words))
    if signal is not None and signal.before_reservation:
        rows.append(("signal", "R: has no effect, as there are no reservations"))
    return rows
