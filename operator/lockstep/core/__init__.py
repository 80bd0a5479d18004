"""Decisions: pure functions from what is seen to what is to be done."""
