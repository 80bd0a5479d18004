"""What Lockstep costs, measured against what the control plane costs by itself."""
