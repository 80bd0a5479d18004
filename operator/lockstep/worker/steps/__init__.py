"""Steps: processes that the program starts on nodes of its own gang, by TLS from worker to worker."""
