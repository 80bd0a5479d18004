"""The steps of ``decide``, each a module."""
