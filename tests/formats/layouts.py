"""Where each library puts what, for tests that write with one and look with Lockstep."""

from typing import NamedTuple


class Layout(NamedTuple):
    """``checkpoint``: below the root, the directory or file that is one step.

    ``overwrites``: a step that is saved again replaces the first (Lightning gives the second a number instead).
    ``files``: a step is one file.
    """

    checkpoint: str
    overwrites: bool = True
    files: bool = False


LAYOUTS = {
    "accelerate": Layout("checkpoint-{step}"),
    "dcp": Layout("step-{step}"),
    "deepspeed_zero": Layout("global_step{step}"),
    "hf": Layout("checkpoint-{step}"),
    "lightning_files": Layout("step={step}.ckpt", overwrites=False, files=True),
    "lightning_sharded": Layout("step={step}.ckpt", overwrites=False),
    "megatron_dist": Layout("iter_{step:07d}"),
    "nvrx": Layout("session/iter_{step:07d}", overwrites=False),
    "orbax": Layout("{step}", overwrites=False),
}
