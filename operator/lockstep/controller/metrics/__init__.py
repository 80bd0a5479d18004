"""Prometheus metrics and health endpoints."""
