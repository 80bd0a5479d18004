"""Reconcile: observe, decide, execute, one key at a time."""
