"""The main job of Lockstep with real training, told while it happens: `python -m demo`."""
