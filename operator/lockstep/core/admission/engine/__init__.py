"""Pure scheduling: jobs, a node calendar, quota, backfill, preemption. Knows nothing of Kubernetes."""
