"""The error a caller of this package may see, with a message fit for a terminal."""


class KindClusterError(Exception):
    """Something that the cluster needs could not be had; the message says what, and what to do."""
