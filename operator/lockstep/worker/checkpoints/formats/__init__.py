"""The verdict on a checkpoint: VALID, INVALID(reason) or UNKNOWN, without loading a model and without unpickling.

Public, for other programs too: ``examine`` (presence, sizes, ends of files, commit order), ``verify_checkpoint``
(reads the bytes where the format has checksums), ``Finding`` and the three verdicts. Both take ``form=`` one of
``FORMATS``, or Auto.

A format is a module here and a line in catalogue.py. What each takes for valid, which traps it knows and what it
cannot know is in docs/checkpoints.md.
"""

from lockstep.worker.checkpoints.formats.catalogue import AUTO, FORMATS
from lockstep.worker.checkpoints.formats.examination import examine, verify_checkpoint
from lockstep.worker.checkpoints.formats.findings import INVALID, UNKNOWN, VALID, Finding, InterruptedCheckError

__all__ = [
    "AUTO",
    "FORMATS",
    "INVALID",
    "UNKNOWN",
    "VALID",
    "Finding",
    "InterruptedCheckError",
    "examine",
    "verify_checkpoint",
]
