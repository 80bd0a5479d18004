"""The worker API: who a worker is, what it reports, and the directive it gets."""
