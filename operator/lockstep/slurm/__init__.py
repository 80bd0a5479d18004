"""Slurm's command lines, variables, patterns and words: pure, and alike for the CLI, the core and the worker."""
