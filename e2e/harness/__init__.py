"""A whole world to run Lockstep in, as the demo, the benchmark and the end-to-end tests need it."""
