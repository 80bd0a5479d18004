"""A cluster to play on: `make playground`."""
