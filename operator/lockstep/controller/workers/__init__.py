"""The worker API: who a worker is, what it reports, what it is told."""
