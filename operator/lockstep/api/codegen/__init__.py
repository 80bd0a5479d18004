"""CRDs and docs/api.md, made from the models."""
