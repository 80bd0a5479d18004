"""The web page: from what the operator knows anyway, and by viewers' own tokens. ``server`` is where to begin."""
