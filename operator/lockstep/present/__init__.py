"""What the CLI and the web page say alike of runs and arrays: state, pending reason, explanation, estimate, actions."""
