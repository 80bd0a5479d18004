"""Admission by Kueue: its Workload is read as an external ledger, and told what became of the gang."""
