"""What any long-running process needs: clock, logs, traces, limits."""
