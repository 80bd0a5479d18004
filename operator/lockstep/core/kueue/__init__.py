"""Admission by Kueue: what a run asks for, which nodes its reservation means, and the Workload's status."""
