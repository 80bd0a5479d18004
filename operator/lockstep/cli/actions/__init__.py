"""What verbs do to runs, arrays and nodes, and wait for."""
