"""The node before training, and when its pod ends: preflight, warm-up, barrier, termination."""
