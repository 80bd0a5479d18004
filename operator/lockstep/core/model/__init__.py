"""What decisions read and write: snapshots of the cluster, plans, and the shapes that both share."""
