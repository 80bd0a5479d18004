"""The steps for a gang without workers (``worker: Disabled``)."""
