"""``lockstep``, also as ``kubectl lockstep``."""
