"""The web page: read-only, from what the operator knows anyway. ``server`` is where to begin."""
