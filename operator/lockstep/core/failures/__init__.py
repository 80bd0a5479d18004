"""What happened to a gang and what the remedy is: evidence, cause, action. Nothing here acts."""
