"""``resumeBy: Pointer``: have a framework's own loader find the step that was chosen, and no other.

What a loader follows is rewritten: Megatron's tracker, DeepSpeed's ``latest``, Lightning's and NeMo's ``last``. Where a
loader takes whatever has the highest number (HuggingFace, Orbax, torchtitan), newer steps get another name. Nothing is
ever deleted, and no file of a checkpoint is changed.

One worker per directory does it, while no process of the training lives. Every single change is atomic and each run
does what is left to do, so it may be cut off anywhere and repeated.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import List, Tuple

from lockstep.worker.checkpoints.formats.accelerate import ACCELERATE
from lockstep.worker.checkpoints.formats.catalogue import AUTO, PASSED_OVER, is_stranger, step_of
from lockstep.worker.checkpoints.formats.deepspeed import DEEPSPEED
from lockstep.worker.checkpoints.formats.deepspeed import POINTER as LATEST
from lockstep.worker.checkpoints.formats.examination import examine
from lockstep.worker.checkpoints.formats.findings import INVALID, UNKNOWN, VALID
from lockstep.worker.checkpoints.formats.huggingface import HUGGING_FACE
from lockstep.worker.checkpoints.formats.lightning import LIGHTNING
from lockstep.worker.checkpoints.formats.megatron import MEGATRON
from lockstep.worker.checkpoints.formats.megatron import POINTER as TRACKER
from lockstep.worker.checkpoints.formats.nemo import NEMO
from lockstep.worker.checkpoints.formats.nvrx import NVRX_LOCAL
from lockstep.worker.checkpoints.tiers import attempt_steps
from lockstep.worker.settings import SHARED_SKEW

_LIGHTNING_LAST = re.compile(r"^(?:last(?:-.*)?|hpc_ckpt_\d+)\.ckpt$")  # it resumes from these whatever is asked
_NEMO_LAST = re.compile(r"^.+-(?:last|end)$")
_FOLLOWS_POINTER = (MEGATRON, DEEPSPEED)  # their loaders never look at what no pointer names

_UNSEEN = ".0."
"""Before an Accelerate name: its own search takes the folder with the largest first number, whatever it is called, and
diffusers' scripts fail over a ``checkpoint...`` that has more behind its ``-`` than a number."""


class PointerError(Exception):
    """The loader would not find the step that was chosen; the message says why."""


def rewrite_pointers(directory: str, form: str, step: int, attempt: int = 0, *, skew: float = SHARED_SKEW) -> List[str]:
    """Make the loader of a format find ``step`` in ``directory``, which holds the checkpoints; says what it did.

    ``attempt`` is the one about to start: newer steps are renamed to ``<name>.lockstep-invalid-<attempt>``, those that
    are whole and yet not wanted (quarantined, or rolled back beyond) to ``….lockstep-passed-over-<attempt>``. A
    ``step-<N>`` becomes ``step_<N>.lockstep-…``, Accelerate's ``checkpoint-<N>`` ``.0.checkpoint-<N>.lockstep-…``.
    Empty when all was so already. Raises PointerError, OSError.
    """
    found = sorted(attempt_steps(directory, 0, form=form), reverse=True)
    chosen, known = _chosen(directory, form, step, [path for each, _, path in found if each == step], skew)
    if known == NVRX_LOCAL:
        return []
    done: List[str] = []
    for newer, _, path in found:
        if newer <= step or (form != AUTO and is_stranger(path, form)):
            continue
        finding = examine(path, form=form, step=newer, skew=skew)
        if finding is None or (finding.verdict != INVALID and known in _FOLLOWS_POINTER):
            continue
        if finding.verdict == UNKNOWN:
            raise PointerError(f"{os.path.basename(path)} is newer and cannot be judged: {finding.reason}")
        why = "invalid" if finding.verdict == INVALID else "passed-over"
        done.append(_put_aside(path, why, attempt, _UNSEEN if known == ACCELERATE else ""))
    name = os.path.basename(chosen)
    if known == MEGATRON:
        done += _write(os.path.join(directory, TRACKER), str(step))
    elif known == DEEPSPEED:
        done += _write(os.path.join(directory, LATEST), name)
    elif known == HUGGING_FACE:
        done += _point_inside(chosen)
    elif known == LIGHTNING:
        done += _point_last(directory, name, step, attempt, skew)
    elif known == NEMO:
        done += _point_nemo(directory, name, step, attempt, skew)
    if done:
        _make_durable(directory)
    return done


def _chosen(directory: str, form: str, step: int, paths: List[str], skew: float) -> Tuple[str, str]:
    """(path, format) of the step, preferring what is called last already. Raises PointerError."""
    reason = f"there is no checkpoint of step {step} in {directory}"
    for path in sorted(paths, key=lambda path: (not _is_last(os.path.basename(path)), path)):
        finding = examine(path, form=form, step=step, skew=skew)
        if finding is not None and finding.verdict == VALID:
            return path, finding.format
        if finding is not None:
            reason = f"{os.path.basename(path)}: {finding.reason}"
    raise PointerError(reason)


def _is_last(name: str) -> bool:
    return bool(_LIGHTNING_LAST.match(name) or _NEMO_LAST.match(name))


def _write(path: str, text: str) -> List[str]:
    """Replace a small file by one with this text, unless it has it."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as stream:
        if stream.read(4096).strip() == text and not os.path.islink(path):
            return []
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.lockstep-tmp")
    with open(temporary, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    return [f"{os.path.basename(path)} = {text}"]


def _link(directory: str, name: str, target: str) -> str:
    temporary = os.path.join(directory, f".{name}.lockstep-tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # our own, of a time that was cut off
    os.symlink(target, temporary)
    os.replace(temporary, os.path.join(directory, name))
    return f"{name} -> {target}"


def _put_aside(path: str, why: str, attempt: int, prefix: str = "") -> str:
    directory, name = os.path.split(path)
    # torchtitan takes every name in which it finds "step-<N>", and so would load, or clean up, what was put aside.
    first = os.path.join(directory, f"{prefix}{re.sub('step-(?=[0-9])', 'step_', name)}.lockstep-{why}-{attempt}")
    target = first
    for count in range(2, 1000):
        if not os.path.lexists(target):
            break
        target = f"{first}-{count}"
    return _rename(path, target)


def put_invalid_aside(path: str, form: str) -> str:
    """Make room for a whole checkpoint of the name of one that is not, which no loader is to find; says what it did.

    Raises PointerError, OSError.
    """
    return _put_aside(path, "invalid", 0, _UNSEEN if form == ACCELERATE else "")


def _rename(path: str, target: str) -> str:
    if os.path.lexists(target):
        raise PointerError(f"{os.path.basename(target)} is in the way of {os.path.basename(path)}")
    os.rename(path, target)
    return f"renamed {os.path.basename(path)} to {os.path.basename(target)}"


def _point_inside(chosen: str) -> List[str]:
    """HuggingFace with DeepSpeed: the ``latest`` inside the checkpoint, where it can name but one."""
    tags = [name for name in os.listdir(chosen) if name.startswith("global_step") and not PASSED_OVER.search(name)]
    done = _write(os.path.join(chosen, LATEST), tags[0]) if len(tags) == 1 else []
    if done:
        _make_durable(chosen)
    return done


def _point_last(directory: str, chosen: str, step: int, attempt: int, skew: float) -> List[str]:
    """Lightning takes ``hpc_ckpt_*.ckpt``, else the youngest ``last*.ckpt``: leave one, the chosen or a link to it."""
    pointer = chosen if _LIGHTNING_LAST.match(chosen) else "last.ckpt"
    done: List[str] = []
    for name in sorted(filter(_LIGHTNING_LAST.match, os.listdir(directory))):
        path = os.path.join(directory, name)
        if name == chosen or (name == pointer and _leads_to(path, chosen)):
            continue
        if name == pointer and os.path.islink(path):
            continue  # replaced below
        kept = [each for each, _, found in attempt_steps(directory, 0, form=LIGHTNING) if found == path]
        finding = examine(path, form=LIGHTNING, skew=skew)
        if not os.path.islink(path) and kept and kept[0] <= step and finding and finding.verdict == VALID:
            done.append(_rename(path, os.path.join(directory, f"kept-{name[: -len('.ckpt')]}-step={kept[0]}.ckpt")))
        else:
            done.append(_put_aside(path, "passed-over", attempt))
    if pointer != chosen and not _leads_to(os.path.join(directory, pointer), chosen):
        done.append(_link(directory, pointer, chosen))
    return done


def _point_nemo(directory: str, chosen: str, step: int, attempt: int, skew: float) -> List[str]:
    """NeMo takes what ends in ``-last``, and takes ``-end`` for the end: leave one, as with Lightning."""
    pointer = chosen if chosen.endswith("-last") else f"{chosen}-last"
    done: List[str] = []
    for name in sorted(filter(_NEMO_LAST.match, os.listdir(directory))):
        path = os.path.join(directory, name)
        if name == chosen or (name == pointer and _leads_to(path, chosen)):
            continue
        own = step_of(path, name, NEMO, os.path.isfile(path))
        finding = examine(path, form=NEMO, skew=skew)
        plain = path[: path.rindex("-")]
        whole = own is not None and own <= step and finding is not None and finding.verdict == VALID
        if whole and not os.path.islink(path) and not os.path.lexists(plain):
            done.append(_rename(path, plain))
        else:
            done.append(_put_aside(path, "passed-over", attempt))
    if pointer != chosen and not _leads_to(os.path.join(directory, pointer), chosen):
        done.append(_link(directory, pointer, chosen))
    return done


def _leads_to(path: str, name: str) -> bool:
    return os.path.islink(path) and os.readlink(path) == name


def _make_durable(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
