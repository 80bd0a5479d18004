"""The archive tier: `python -m lockstep.archive upload|restore|list|prune`, run as a job beside the gang.

The operator never touches checkpoint data; it makes jobs from its own image and reads how they ended.
Errors are words with exit codes (outcomes.py); what is in the store is defined by record.py alone.
"""
