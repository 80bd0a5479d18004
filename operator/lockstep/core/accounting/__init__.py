"""Where the time of a run went, what it used, and what that costs."""
