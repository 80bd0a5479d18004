"""The node before training: preflight, warm-up, barrier."""
