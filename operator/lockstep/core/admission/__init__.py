"""Who gets nodes, and when."""
