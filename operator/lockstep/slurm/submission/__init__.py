"""What sbatch is given: directives, options, and the one request that they make. Read where jobs are submitted."""
