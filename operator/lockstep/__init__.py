"""Lockstep runs LLM training on Kubernetes as one gang."""

__version__ = "0.1.0"
