"""Arrays: which index of a TrainingRunSet gets its run when, and what came of each."""
