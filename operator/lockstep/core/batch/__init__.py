"""From what sbatch was given to the run that it means."""
