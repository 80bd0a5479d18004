"""Slurm's commands as programs of a batch job: what they ask for is a step, a file of the job, or the operator's."""
