"""A genuine kind cluster with Lockstep in it, and its images; all of it made here where no registry answers."""
