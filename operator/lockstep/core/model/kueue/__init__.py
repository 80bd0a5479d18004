"""Kueue's objects as views, and what is to be written to them, as data."""
