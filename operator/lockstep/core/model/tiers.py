"""The tiers that checkpoints are kept in, and how fast each is read."""

LOCAL = "local"
SHARED = "shared"
ARCHIVE = "archive"
BANDWIDTH = {LOCAL: 5e9, SHARED: 50e9, ARCHIVE: 10e9}
"""Bytes per second that a checkpoint is taken to be loaded with: of one node's disk, of the whole of the others."""
