"""What is created for a gang: its pods, PodGroups and launchers, and what a spec may not ask for."""
