"""Checkpoints as decisions see them: verdicts, the resume choice, saves, cadence, retention, archive."""
