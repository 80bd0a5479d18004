"""Which nodes a gang may stand on, and which of them it gets: fit, topology, rank order."""
