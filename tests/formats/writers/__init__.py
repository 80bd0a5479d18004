"""One module per library: how it saves, how it loads, and how it finds what to resume from.

Every module has

``FORM``        the checkpoint.format that Lockstep calls this
``WORLD``       processes that save together
``LIBRARIES``   distributions whose versions say what wrote a fixture
``save(root, steps, generation)``   saves those steps, in order, below ``root``; called in every process
``load(root, step)``                the library's own loader on that step; returns the stamp it found
``resume(root)``                    the library's own search for the newest step; returns (step, stamp)

Everything that is saved is filled with one number, the stamp of its step and generation (a second generation
overwrites the first): a loader that finds two of them has loaded a mixture, and raises `MixedError`.
"""


class MixedError(Exception):
    """The loader took what it was given, but it is not the state of one save."""


def stamp(step: int, generation: int) -> int:
    return 100 * generation + step  # small enough for bfloat16


def only(stamps: set[int]) -> int:
    """The one stamp of everything that was loaded. Raises MixedError."""
    if len(stamps) != 1:
        raise MixedError(f"holds the state of {len(stamps)} saves: {sorted(stamps)}")
    return next(iter(stamps))


size = 1  # how many times larger than tiny everything is; set for saves that are to be hit in the middle of a write
