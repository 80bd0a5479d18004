"""How programs that start the others themselves find the nodes of their gang: one module for each such launcher."""
