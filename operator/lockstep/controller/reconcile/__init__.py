"""Observe, decide, execute: one look at one key."""
