"""Checkpoints as this node sees them: tiers, verdicts, pointers, removal."""
