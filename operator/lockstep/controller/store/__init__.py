"""What the operator knows of the cluster, kept current by watches and by the answers to its writes."""
